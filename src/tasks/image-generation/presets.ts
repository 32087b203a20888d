import type { MixerChoice } from "../../models/config.ts";
import { rAdam } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import type { UpdateRule } from "../../train/optimizers/optimizer.ts";
import type { ImageShape } from "./images.ts";
import type { PixelModelConfig } from "./pixel-model.ts";

/** Grey images of 28 × 28: the 784 values of MNIST and Fashion-MNIST. */
export const greyShape: ImageShape = { height: 28, width: 28, channels: 1 };

/** Colour images of 32 × 32: the 3,072 values of CIFAR-10. */
export const colourShape: ImageShape = { height: 32, width: 32, channels: 3 };

/** Sizes of a model of images. */
export interface PixelModelSizes {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
}

/** The sizes of "Transformers are RNNs" (arXiv 2006.16236v3, section 4.2): heads of 32, feed-forwards 4 times as wide. */
export const paperSizes: Readonly<Record<"grey" | "colour", PixelModelSizes>> = {
  grey: { width: 256, layers: 8, heads: 8 },
  colour: { width: 256, layers: 16, heads: 8 },
};

/** A model of images of one mixer in every layer. */
export function pixelModelConfig(
  mixer: MixerChoice,
  { width, layers, heads }: PixelModelSizes,
  shape: ImageShape,
  options: Partial<Pick<PixelModelConfig, "output" | "classes" | "seesNeighbours">> = {},
): PixelModelConfig {
  return {
    ...{ shape, output: "mixture", ...options },
    decoder: {
      ...{ width, layers, heads, pattern: [mixer], norm: "layer" },
      feedForward: { kind: "plain", width: 4 * width },
    },
  };
}

/** A setting in which models of images meet. */
export interface ImagePreset {
  readonly description: string;
  /** The set it is meant for. */
  readonly data: "mnist" | "emoji";
  readonly sizes: PixelModelSizes;
  /** Mixers by the names of the contenders. */
  readonly contenders: Readonly<Record<string, MixerChoice>>;
  /** What the paper's models do without: neighbours in the image as part of what a place is told. */
  readonly seesNeighbours?: boolean;
  readonly batch: number;
  readonly steps: number;
  /** Seconds of each contender at most. */
  readonly seconds?: number;
  readonly learningRate: number;
  readonly weightDecay: number;
  readonly warmup: number;
  /** Whether the rate falls to 0 towards the end, or stays. */
  readonly decays: boolean;
  readonly rule: () => UpdateRule;
  /** Held-out images scored at the end; a tenth of them at each look before. */
  readonly heldOut: number;
  /** Looks at samples and held-out images on the way. */
  readonly looks: number;
}

const contenders = { linear: "linear", softmax: "softmax" };

/** The presets of `linnet experiment images`. */
export const imagePresets: Readonly<Record<string, ImagePreset>> = {
  quick: {
    description: "digits by a small model, ten minutes a contender",
    data: "mnist",
    sizes: { width: 64, layers: 4, heads: 4 },
    contenders,
    seesNeighbours: true,
    ...{ batch: 4, steps: 1_000_000, seconds: 600, learningRate: 4e-3, weightDecay: 0.01, warmup: 30 },
    decays: true,
    rule: () => muon({ beta2: 0.98 }),
    ...{ heldOut: 500, looks: 6 },
  },
  mnist: {
    description: "digits as in the paper: 8 layers, RAdam, 250 epochs of batches of 10",
    data: "mnist",
    sizes: paperSizes.grey,
    contenders: { ...contenders, "lsh-1": { id: "lsh", rounds: 1 }, "lsh-4": { id: "lsh", rounds: 4 } },
    ...{ batch: 10, steps: 1_500_000, learningRate: 1e-4, weightDecay: 0, warmup: 0 },
    decays: false,
    rule: () => rAdam(),
    ...{ heldOut: 10_000, looks: 250 },
  },
  colour: {
    description: "colour images of 32 × 32 by the paper's 16 layers, RAdam, batches of 4",
    data: "emoji",
    sizes: paperSizes.colour,
    contenders: { ...contenders, "lsh-1": { id: "lsh", rounds: 1 }, "lsh-4": { id: "lsh", rounds: 4 } },
    ...{ batch: 4, steps: 1_000_000, learningRate: 1e-4, weightDecay: 0, warmup: 0 },
    decays: false,
    rule: () => rAdam(),
    ...{ heldOut: 200, looks: 250 },
  },
};
