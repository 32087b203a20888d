import type { Mechanism } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { forms, inputs, weights } from "./forms.ts";
import { LatentAttentionLayer } from "./layer.ts";
import { reference } from "./reference.ts";

/** Multi-head latent attention: exact attention over a compressed cache. */
export const latentAttention: Mechanism = {
  id: "latent-attention",
  title: "Latent attention (MLA)",
  sources: [
    {
      title: "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
      id: "arXiv:2405.04434v5",
      equations: "eq. 9–19",
    },
    {
      title: "Kimi Linear: An Expressive, Efficient Attention Architecture",
      id: "arXiv:2510.26692v2",
      equations: "without positions: section 4 (labels unverified)",
    },
  ],
  inputs,
  state: {
    latent: { axes: "B past R", input: "initialLatent", output: "finalLatent" },
    sharedKey: { axes: "B past P", input: "initialSharedKey", output: "finalSharedKey" },
  },
  traits: {
    decay: "none",
    write: "none",
    normalized: true,
    causal: true,
    full: true,
    prefixExact: true,
    constantState: false,
    linearInValue: false,
    unitKeys: false,
    correctionReadsDecayed: false,
    readsBeforeWrite: false,
  },
  ownAxes: ({ K }) => ({ R: 4 * K!, P: 2 * Math.ceil(K! / 4) }),
  reference,
  forms,
  weights,
  reductions: [],
  layer: (options) => new LatentAttentionLayer(options),
  benchShapes,
};
