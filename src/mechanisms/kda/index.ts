import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import {
  benchShapes,
  initialState,
  keyGate,
  matrixState,
  query,
  unitKey,
  value,
  writeStrength,
} from "../rules.ts";
import { equalChannels } from "../values.ts";
import { KimiDeltaLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: unitKey, v: value, g: keyGate, beta: writeStrength, initialState };

/** Kimi Delta Attention: the delta rule on a state whose key channels decay each by themselves. */
export const kda: Mechanism = {
  id: "kda",
  title: "Kimi Delta Attention",
  equation: "S ← diag(exp g)S, S ← S + kβ(v − Sᵀk)ᵀ, o = Sᵀq/√K",
  use: "As gated-delta with a gate per key channel (Kimi Linear): the strongest recall here per byte of state, the dearest step.",
  sources: [
    {
      title: "Kimi Linear: An Expressive, Efficient Attention Architecture",
      id: "arXiv:2510.26692v2",
      equations: "Kimi Delta Attention: the update and the layer",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "kda", inputs, rule }),
  reductions: [
    {
      to: "gated-delta",
      when: "all channels of a token decay alike",
      inputs: (own) => {
        const { scalar, channels } = equalChannels(own["g"]!);
        return { own: { ...own, g: channels }, other: { ...own, g: scalar } };
      },
    },
  ],
  layer: (options) => new KimiDeltaLayer(options),
  benchShapes,
};
