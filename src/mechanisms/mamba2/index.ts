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
  equation: "S ← exp(g)S + B(Δx)ᵀ, o = SᵀC + D·x, g = −exp(A_log)Δ",
  use: "The state space view with one decay per head and token: fast, proven at scale, weaker at recall than delta writes.",
  sources: [
    {
      title:
        "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality",
      id: "arXiv:2405.21060v1",
      equations: "state space duality with a scalar A, the Mamba-2 block",
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
