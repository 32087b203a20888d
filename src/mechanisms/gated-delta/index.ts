import type { Mechanism, Values } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import {
  benchShapes,
  initialState,
  matrixState,
  query,
  scalarGate,
  unitKey,
  value,
  writeStrength,
} from "../rules.ts";
import { zeroValues } from "../values.ts";
import { GatedDeltaLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: unitKey, v: value, g: scalarGate, beta: writeStrength, initialState };

/** Gated DeltaNet: the delta rule on a state that decays by a scalar per token. */
export const gatedDelta: Mechanism = {
  id: "gated-delta",
  title: "Gated DeltaNet",
  equation: "S ← exp(g)S, S ← S + kβ(v − Sᵀk)ᵀ, o = Sᵀq/√K",
  use: "The default for language: forgets by its gate and overwrites by its delta write (Qwen3-Next).",
  sources: [
    {
      title: "Gated Delta Networks: Improving Mamba2 with Delta Rule",
      id: "arXiv:2412.06464v3",
      equations: "the gated delta rule, the layer",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "gated-delta", inputs, rule }),
  reductions: [
    {
      to: "delta",
      when: "g = 0",
      inputs: (own) => {
        const { g, ...rest } = own as Readonly<Record<string, Values>> & { g: Values };
        return { own: { ...rest, g: zeroValues(g.shape) }, other: rest };
      },
    },
  ],
  layer: (options) => new GatedDeltaLayer(options),
  benchShapes,
};
