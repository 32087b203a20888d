import { unitLength } from "../feature-maps/unit.ts";
import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, initialState, key, matrixState, query, value } from "../rules.ts";
import { unitRows, zeroValues } from "../values.ts";
import { CosineLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: key, v: value, initialState };

/** Cosine attention: values weighed by the cosines between queries and keys. */
export const cosine: Mechanism = {
  id: "cosine",
  title: "Cosine attention",
  equation: "S ← S + k̂vᵀ, o = Sᵀq̂, hats at unit length",
  use: "Bounded weights without a normaliser; full and causal. A norm behind it takes care of sums that grow with the context.",
  sources: [
    {
      title: "Cottention: Linear Transformers With Cosine Attention",
      id: "arXiv:2409.18747v1",
      equations: "cosine attention, without its learned scale",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule, { full: true }),
  reference,
  forms: recurrenceForms({
    id: "cosine",
    inputs,
    rule,
    fullRule: rule,
    prepare: ({ q, k, v, initialState: S }) => ({
      inputs: { q: unitLength(q!), k: unitLength(k!), v: v!, initialState: S },
    }),
  }),
  reductions: [
    {
      to: "mamba2",
      when: "g = 0 there, and its q and k are at unit length",
      inputs: (own) => {
        const g = zeroValues(own["v"]!.shape.slice(0, 3));
        return { own, other: { ...own, q: unitRows(own["q"]!), k: unitRows(own["k"]!), g } };
      },
    },
  ],
  layer: (options) => new CosineLayer(options),
  benchShapes,
};
