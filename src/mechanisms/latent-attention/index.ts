import type { Mechanism } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { forms, inputs, weights } from "./forms.ts";
import { LatentAttentionLayer } from "./layer.ts";
import { reference } from "./reference.ts";

/** Multi-head latent attention: exact attention over a compressed cache. */
export const latentAttention: Mechanism = {
  id: "latent-attention",
  title: "Latent attention (MLA)",
  equation: "as softmax, k = [U_K c | p], v = U_V c",
  use: "Softmax whose cache holds R + P numbers a token whatever the number of heads (DeepSeek, Kimi Linear).",
  sources: [
    {
      title: "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
      id: "arXiv:2405.04434v5",
      equations:
        "multi-head latent attention: low-rank joint compression of keys and values, decoupled rotary positions (section 2.1)",
    },
    {
      title: "Kimi Linear: An Expressive, Efficient Attention Architecture",
      id: "arXiv:2510.26692v2",
      equations: "latent attention without positions",
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
