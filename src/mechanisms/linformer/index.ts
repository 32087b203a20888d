import { fullTraits } from "../attention/full-forms.ts";
import type { Mechanism } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { forms, inputs } from "./forms.ts";
import { LinformerLayer } from "./layer.ts";
import { reference } from "./reference.ts";

/** Linformer: attention to learned sums of tokens instead of tokens. */
export const linformer: Mechanism = {
  id: "linformer",
  title: "Linformer",
  equation: "softmax(q(Ek)ᵀ/√K) Fv, E and F learned M×L",
  use: "Encoders of a fixed longest length; each position has columns of its own. Not causal.",
  sources: [
    {
      title: "Linformer: Self-Attention with Linear Complexity",
      id: "arXiv:2006.04768v3",
      equations: "attention to keys and values projected along time, ways to share the projections",
    },
  ],
  inputs,
  state: {},
  traits: { ...fullTraits, normalized: true },
  ownAxes: ({ T }) => ({ G: 1, M: Math.max(1, Math.min(256, Math.floor(T! / 4))), L: T! }),
  reference,
  forms,
  reductions: [],
  layer: (options) => new LinformerLayer(options),
  benchShapes,
};
