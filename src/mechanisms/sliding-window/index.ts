import type { Mechanism, Reference, Values } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { row, zeroValues } from "../values.ts";
import { defaultWindow, forms, inputs, type SlidingWindowFormOptions } from "./forms.ts";
import { SlidingWindowLayer } from "./layer.ts";
import { reference as windowed } from "./reference.ts";

const reference: Reference = (given, options: SlidingWindowFormOptions) =>
  windowed(given, { ...options, window: options.window ?? defaultWindow });

/** `[B,T,HKV,W]` repeated to the heads of queries. */
function forEveryHead(x: Values, heads: number): Values {
  const [B, T, H, W] = x.shape as [number, number, number, number];
  const repeated = zeroValues([B, T, heads, W]);
  for (let b = 0; b < B; b++)
    for (let t = 0; t < T; t++)
      for (let h = 0; h < heads; h++)
        row(repeated, W, b, t, h).set(row(x, W, b, t, Math.floor(h / (heads / H))));
  return repeated;
}

/** A window of exact softmax joined with linear attention over everything before it. */
export const slidingWindow: Mechanism = {
  id: "sliding-window",
  title: "Sliding window with linear attention",
  equation: "(Σ_window e^{s}v + Σ_before φ(q)·φ(k)v) over the same sums of weights",
  use: "To linearise a softmax model: exact near the token, linear before it, a state of fixed size.",
  sources: [
    {
      title: "LoLCATs: On Low-Rank Linearizing of Large Language Models",
      id: "arXiv:2410.10254v3",
      equations: "linear attention and a softmax window in one denominator",
    },
    {
      title: "Leave No Context Behind: Efficient Infinite Context Transformers with Infini-attention",
      id: "arXiv:2404.07143v1",
      equations: "the gated sum of a memory and local attention",
    },
  ],
  inputs,
  state: {
    keys: { axes: "B past HKV K", input: "initialKeys", output: "finalKeys" },
    values: { axes: "B past HKV V", input: "initialValues", output: "finalValues" },
    state: { axes: "B HQ G V", input: "initialState", output: "finalState" },
    normalizer: { axes: "B HQ G", input: "initialNormalizer", output: "finalNormalizer" },
  },
  traits: {
    decay: "none",
    write: "add",
    normalized: true,
    causal: true,
    full: false,
    prefixExact: true,
    constantState: true,
    linearInValue: true,
    unitKeys: false,
    correctionReadsDecayed: false,
    readsBeforeWrite: false,
  },
  ownAxes: ({ K }) => ({ F: Math.ceil(K! / 2), G: 2 * Math.ceil(K! / 2) }),
  reference,
  forms,
  reductions: [
    {
      to: "softmax",
      when: "the window covers all tokens",
      inputs: ({ q, k, v }) => {
        const given = { q: q!, k: k!, v: v! };
        const ownOptions: SlidingWindowFormOptions = { window: k!.shape[1]! };
        return { own: given, other: given, ownOptions };
      },
    },
    {
      to: "linear",
      when: "the window is 0",
      inputs: ({ q, k, v }) => {
        const own = { q: q!, k: k!, v: v! };
        const heads = q!.shape[2]!;
        const ownOptions: SlidingWindowFormOptions = { window: 0 };
        const other = { q: q!, k: forEveryHead(k!, heads), v: forEveryHead(v!, heads) };
        return { own, other, ownOptions, otherOptions: { eps: 0 } };
      },
    },
  ],
  layer: (options) => new SlidingWindowLayer(options),
  benchShapes,
};
