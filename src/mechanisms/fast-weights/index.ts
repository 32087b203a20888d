import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import {
  benchShapes,
  featureState,
  initialFeatureState,
  key,
  query,
  value,
  writeStrength,
} from "../rules.ts";
import { FastWeightsLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { defaultRolls, mapOf, rule, sumNormalized } from "./rule.ts";

const inputs = { q: query, k: key, v: value, beta: writeStrength, initialState: initialFeatureState };
const featureWidth = (keyWidth: number): number => 2 * defaultRolls * keyWidth;

/** Fast weight programmers: the delta rule on sparse deterministic features. */
export const fastWeights: Mechanism = {
  id: "fast-weights",
  title: "Fast weights (DPFP)",
  equation: "S ← S + φ(k)β(v − Sᵀφ(k))ᵀ, o = Sᵀφ(q), φ sparse and summing to 1",
  use: "Delta writes on sparse features, where keys are few and collisions matter; the state has 2νK rows.",
  sources: [
    {
      title: "Linear Transformers Are Secretly Fast Weight Programmers",
      id: "arXiv:2102.11174v3",
      equations: "the delta update rule, deterministic parameter-free projection, sum normalisation",
    },
  ],
  inputs,
  state: { state: featureState },
  traits: traitsOf(rule, { unitKeys: false }),
  featureWidth,
  reference,
  forms: recurrenceForms({
    id: "fast-weights",
    inputs,
    rule,
    featureWidth,
    prepare: ({ q, k, v, beta, initialState }) => {
      const map = mapOf();
      const mapped = { q: sumNormalized(map, q!), k: sumNormalized(map, k!) };
      return { inputs: { ...mapped, v: v!, beta, initialState } };
    },
  }),
  reductions: [],
  layer: (options) => new FastWeightsLayer(options),
  benchShapes: benchShapes.map((shape) => ({ ...shape, K: 16 })),
};
