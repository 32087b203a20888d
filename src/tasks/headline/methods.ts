import type { MixerChoice } from "../../models/config.ts";
import type { ImageShape } from "../image-generation/images.ts";
import { colourShape, greyShape, type PixelModelSizes, paperSizes } from "../image-generation/presets.ts";

/** A model of the paper, and what the paper measured with it. */
export interface HeadlineModel {
  readonly name: string;
  readonly shape: ImageShape;
  readonly sizes: PixelModelSizes;
  /** Images a second on the paper's GPU, by method, and linear over softmax there. */
  readonly paper: Readonly<Record<string, number>>;
}

/**
 * The two models of "Transformers are RNNs" with the images a second of its tables 1, 2 and 4 (arXiv 2006.16236v3): one
 * GPU, softmax by the whole matrix.
 */
export const headlineModels: readonly HeadlineModel[] = [
  {
    name: "grey",
    shape: greyShape,
    sizes: paperSizes.grey,
    paper: {
      linear: 142.8,
      "softmax-matrix": 0.45,
      "softmax-cache": 7.56,
      "lsh-1": 0.68,
      "lsh-4": 0.27,
      ratio: 317,
    },
  },
  {
    name: "colour",
    shape: colourShape,
    sizes: paperSizes.colour,
    paper: {
      linear: 17.85,
      "softmax-matrix": 0.004,
      "softmax-cache": 0.32,
      "lsh-1": 0.015,
      "lsh-4": 0.005,
      ratio: 4462,
    },
  },
];

/** Sizes that costs follow from. */
export interface CostSizes extends PixelModelSizes {
  /** Width of a head. */
  readonly head: number;
}

/** A way of making images, and what one step of it costs at least. */
export interface HeadlineMethod {
  readonly id: string;
  readonly mixer: MixerChoice;
  /** Whether a step continues from a state; else it sees the whole prefix again. */
  readonly carries: boolean;
  /** Weights of a layer in units of width²: its projections and its feed-forward. */
  readonly squares: number;
  /** Operations of the mixer alone in one layer, for the step after `t` values of one image. */
  mixing(t: number, sizes: CostSizes): number;
  /** Bytes of state of one image in one layer that the step after `t` values reads or writes. */
  stateBytes(t: number, sizes: CostSizes): number;
}

/** Four projections of width², and a feed-forward four times as wide. */
const usualSquares = 4 + 8;

/** Operations of one query against one key, and of its share of the value. */
const pair = ({ heads, head }: CostSizes): number => 4 * heads * head;

const none = (): number => 0;

/** Tokens of a group of the sorted sequence, as the mixer has it; each sees two groups. */
const group = 64;

function lsh(rounds: number): HeadlineMethod {
  return {
    id: `lsh-${rounds}`,
    mixer: { id: "lsh", rounds, group },
    carries: false,
    // Queries are keys.
    squares: usualSquares - 1,
    // A causal query sees every second token of those that it stands with, more or less.
    mixing: (t, sizes) => ((rounds * t * Math.min(2 * group, t)) / 2) * pair(sizes),
    stateBytes: none,
  };
}

/** What is compared, the fixed state first: ratios are to it. */
export const headlineMethods: readonly HeadlineMethod[] = [
  {
    id: "linear",
    mixer: "linear",
    carries: true,
    squares: usualSquares,
    // Writing k vᵀ and k, reading q S and q·z.
    mixing: (_, { heads, head }) => heads * (4 * head * head + 4 * head),
    stateBytes: (_, { heads, head }) => 2 * 4 * heads * (head * head + head),
  },
  {
    id: "softmax-tiles",
    mixer: { id: "softmax", decoding: "stateless" },
    carries: false,
    squares: usualSquares,
    mixing: (t, sizes) => ((t * (t + 1)) / 2) * pair(sizes),
    stateBytes: none,
  },
  {
    id: "softmax-matrix",
    mixer: { id: "softmax", decoding: "matrix" },
    carries: false,
    squares: usualSquares,
    mixing: (t, sizes) => t * t * pair(sizes),
    stateBytes: (t, { heads }) => 4 * heads * t * t,
  },
  {
    id: "softmax-cache",
    mixer: { id: "softmax", decoding: "cache" },
    carries: true,
    squares: usualSquares,
    mixing: (t, sizes) => t * pair(sizes),
    stateBytes: (t, { heads, head }) => 4 * t * 2 * heads * head,
  },
  lsh(1),
  lsh(4),
];

/** Operations and bytes. */
export interface Cost {
  readonly operations: number;
  readonly bytes: number;
}

/**
 * The least that one step after `t` values must do for `batch` images together: the weights' part, and the mixers' part,
 * which cannot run at the same time as what comes before and after it in a layer.
 */
export function stepCost(
  method: HeadlineMethod,
  { sizes }: HeadlineModel,
  outputWidth: number,
  t: number,
  batch: number,
): { readonly weights: Cost; readonly mixing: Cost } {
  const { width, layers, heads } = sizes;
  const own = { ...sizes, head: width / heads };
  const weights = layers * method.squares * width ** 2;
  const tokens = method.carries ? 1 : t;
  return {
    weights: { operations: 2 * batch * (tokens * weights + width * outputWidth), bytes: 4 * weights },
    mixing: {
      operations: batch * layers * method.mixing(t, own),
      bytes: batch * layers * method.stateBytes(t, own),
    },
  };
}
