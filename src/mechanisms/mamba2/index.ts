import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, initialState, key, matrixState, query, scalarGate, value } from "../rules.ts";
import { equalTokens } from "../values.ts";
import { Mamba2Layer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: key, v: value, g: scalarGate, initialState };

/** Mamba-2's state space dual: C as q, B as k, Δx as v, −exp(A_log)·Δ as g. */
export const mamba2: Mechanism = {
  id: "mamba2",
  title: "Mamba-2 (state space duality)",
  sources: [
    {
      title:
        "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality",
      id: "arXiv:2405.21060v1",
      equations: "update: eq. 2 with the scalar A of section 5; layer: section 7",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "mamba2", inputs, rule }),
  reductions: [
    {
      to: "lightning",
      when: "all tokens of a head decay alike",
      inputs: (own) => {
        const { tokens, heads } = equalTokens(own["g"]!);
        return { own: { ...own, g: tokens }, other: { ...own, g: heads } };
      },
    },
  ],
  layer: (options) => new Mamba2Layer(options),
  benchShapes,
};
