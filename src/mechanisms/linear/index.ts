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
  sources: [
    {
      title: "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
      id: "arXiv:2006.16236v3",
      equations: "full: eq. 5; map: eq. 7; causal: eq. 9; gradients: eq. 13–15",
    },
    {
      title: "RoFormer: Enhanced Transformer with Rotary Position Embedding",
      id: "arXiv:2104.09864v5",
      equations: "rotary numerator over a denominator without: eq. 19",
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
