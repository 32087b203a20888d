import { favorCount } from "../feature-maps/favor.ts";
import type { InputRule, Mechanism, StatePart } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import {
  benchShapes,
  featureNormalizerState,
  featureState,
  initialFeatureNormalizer,
  initialFeatureState,
  key,
  query,
  value,
} from "../rules.ts";
import { PerformerLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { fullRule, type PerformerInputs, performerInputs, rule } from "./rule.ts";

const features: InputRule = {
  axes: "F K",
  domain: "rows drawn from N(0, I)",
  differentiable: false,
  sample: (normal) => normal,
};
const initialMaximum: InputRule = {
  axes: "B HV",
  domain: "any, or −Infinity where nothing was seen",
  optional: true,
  differentiable: false,
  admits: (number) => number < Number.POSITIVE_INFINITY,
  sample: (normal) => normal,
};
const maximum: StatePart = { axes: "B HV", input: "initialMaximum", output: "finalMaximum", isUnit: true };
const inputs = {
  q: query,
  k: key,
  v: value,
  features,
  initialState: initialFeatureState,
  initialNormalizer: initialFeatureNormalizer,
  initialMaximum,
};

/** Performer: softmax attention estimated without bias by positive orthogonal random features. */
export const performer: Mechanism = {
  id: "performer",
  title: "Performer (FAVOR+)",
  equation: "o = Σ φ(q)·φ(k) v / Σ φ(q)·φ(k), E φ(q)·φ(k) = exp(q·k/√K)",
  use: "To stand in for trained softmax weights without a T×T matrix, the error falling as one over the root of the features.",
  sources: [
    {
      title: "Rethinking Attention with Performers",
      id: "arXiv:2009.14794v4",
      equations: "positive features of the softmax kernel, orthogonal random directions (section 2)",
    },
  ],
  inputs,
  state: { state: featureState, normalizer: featureNormalizerState, maximum },
  traits: traitsOf(rule, { full: true }),
  featureWidth: favorCount,
  reference,
  forms: recurrenceForms({
    id: "performer",
    inputs,
    rule,
    fullRule,
    prepare: (given, { causal, cuSeqlens }) => {
      const prepared = performerInputs(given as unknown as PerformerInputs, causal, cuSeqlens);
      return { inputs: prepared.inputs, finals: { finalMaximum: prepared.finalMaximum } };
    },
  }),
  reductions: [],
  layer: (options) => new PerformerLayer(options),
  benchShapes,
};
