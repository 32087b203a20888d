import type { Mechanism } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { forms, inputs } from "./forms.ts";
import { SoftmaxLayer } from "./layer.ts";
import { reference } from "./reference.ts";

/** Exact scaled dot-product attention. */
export const softmax: Mechanism = {
  id: "softmax",
  title: "Softmax attention",
  equation: "o = Σ softmax(q·k/√K) v",
  use: "The measure of all others: exact, with a cache that grows with the context. Best for short sequences and exact recall.",
  sources: [
    {
      title: "Attention Is All You Need",
      id: "arXiv:1706.03762v7",
      equations: "eq. 1; heads: section 3.2.2",
    },
    {
      title: "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
      id: "arXiv:2307.08691v1",
      equations: "tiles: algorithms 1 and 2",
    },
    {
      title: "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
      id: "arXiv:2305.13245v3",
      equations: "grouped queries: section 2.2",
    },
  ],
  inputs,
  state: {
    keys: { axes: "B past HKV K", input: "initialKeys", output: "finalKeys" },
    values: { axes: "B past HKV V", input: "initialValues", output: "finalValues" },
  },
  traits: {
    decay: "none",
    write: "none",
    normalized: true,
    causal: true,
    full: true,
    prefixExact: true,
    constantState: false,
    linearInValue: true,
    unitKeys: false,
    correctionReadsDecayed: false,
    readsBeforeWrite: false,
  },
  reference,
  forms,
  reductions: [],
  layer: (options) => new SoftmaxLayer(options),
  benchShapes,
};
