import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, initialState, key, keyGate, matrixState, query, value } from "../rules.ts";
import { equalChannels } from "../values.ts";
import { GatedLinearLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: key, v: value, g: keyGate, initialState };

/** Gated linear attention: every key channel forgets at a rate that the token says. */
export const gla: Mechanism = {
  id: "gla",
  title: "Gated linear attention",
  equation: "S ← diag(exp g)S + kvᵀ, o = Sᵀq/√K",
  use: "A learned decay for every key channel: more to remember with than one gate a head, at the cost of sub-chunks.",
  sources: [
    {
      title: "Gated Linear Attention Transformers with Hardware-Efficient Training",
      id: "arXiv:2312.06635v6",
      equations: "the recurrence with a gate per key channel, the layer and its low-rank gate (section 4)",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "gla", inputs, rule }),
  reductions: [
    {
      to: "mamba2",
      when: "all channels of a token decay alike, and the scale is K^-½",
      inputs: (own) => {
        const { scalar, channels } = equalChannels(own["g"]!);
        const scale = own["q"]!.shape[3]! ** -0.5;
        return { own: { ...own, g: channels }, other: { ...own, g: scalar }, otherOptions: { scale } };
      },
    },
  ],
  layer: (options) => new GatedLinearLayer(options),
  benchShapes,
};
