import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, initialState, matrixState, query, unitKey, value, writeStrength } from "../rules.ts";
import { axisKeys, zeroValues } from "../values.ts";
import { DeltaLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: unitKey, v: value, beta: writeStrength, initialState };

/** DeltaNet: a write replaces what its key held before instead of being added to it. */
export const delta: Mechanism = {
  id: "delta",
  title: "DeltaNet",
  equation: "S ← S + kβ(v − Sᵀk)ᵀ, o = Sᵀq/√K",
  use: "Exact recall and overwriting of associations; without a decay, so what is never overwritten stays.",
  sources: [
    {
      title: "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
      id: "arXiv:2406.06484v6",
      equations: "the delta update, its chunkwise form by the WY representation",
    },
    {
      title: "Linear Transformers Are Secretly Fast Weight Programmers",
      id: "arXiv:2102.11174v3",
      equations: "the delta update rule",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "delta", inputs, rule }),
  reductions: [
    {
      to: "mamba2",
      when: "keys are orthonormal, β = 1, the state begins empty and T ≤ K: nothing is replaced; g = 0 and scale K^-½ there",
      sizes: { T: 8, K: 16 },
      inputs: ({ q, k, v, beta }) => {
        const keys = axisKeys(k!.shape);
        const scale = q!.shape[3]! ** -0.5;
        return {
          own: { q: q!, k: keys, v: v!, beta: { shape: beta!.shape, data: beta!.data.map(() => 1) } },
          other: { q: q!, k: keys, v: v!, g: zeroValues(v!.shape.slice(0, 3)) },
          otherOptions: { scale },
        };
      },
    },
  ],
  layer: (options) => new DeltaLayer(options),
  benchShapes,
};
