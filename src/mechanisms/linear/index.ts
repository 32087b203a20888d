import { eluPlusOneMap } from "../feature-maps/elu-plus-one.ts";
import type { Mechanism } from "../mechanism.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, featureNormalizerState, featureState } from "../rules.ts";
import { inputs, linearForms } from "./forms.ts";
import { LinearAttentionLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

/** Linear attention: a positive map instead of the exponential, a running sum instead of a softmax. */
export const linear: Mechanism = {
  id: "linear",
  title: "Linear attention",
  equation: "S ← S + φ(k)vᵀ, z ← z + φ(k), o = Sᵀφ(q) / (z·φ(q) + eps)",
  use: "The plain member: cheapest state update, full and causal, cross-attention. Forgets nothing, so long streams blur; take a gated one for language.",
  sources: [
    {
      title: "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
      id: "arXiv:2006.16236v3",
      equations:
        "linearised attention, full and causal, the map elu + 1, gradients in linear time (section 3)",
    },
    {
      title: "RoFormer: Enhanced Transformer with Rotary Position Embedding",
      id: "arXiv:2104.09864v5",
      equations: "rotary positions with linear attention: a turned numerator over a denominator that is not",
    },
  ],
  inputs,
  state: { state: featureState, normalizer: featureNormalizerState },
  traits: traitsOf(rule, { full: true }),
  featureWidth: eluPlusOneMap.width,
  reference,
  forms: linearForms(eluPlusOneMap),
  reductions: [],
  layer: (options) => new LinearAttentionLayer(options),
  benchShapes,
};
