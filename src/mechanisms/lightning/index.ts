import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, headGate, initialState, key, matrixState, query, value } from "../rules.ts";
import { LightningLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { rule } from "./rule.ts";

const inputs = { q: query, k: key, v: value, g: headGate, initialState };

/** Lightning attention: retention with slopes that depend on the depth, without a scale. */
export const lightning: Mechanism = {
  id: "lightning",
  title: "Lightning attention (MiniMax-01)",
  equation: "S ← γS + kvᵀ, o = Sᵀq, γ by head and depth",
  use: "The linear layers of MiniMax-01 between layers of softmax.",
  sources: [
    {
      title:
        "Lightning Attention-2: A Free Lunch for Handling Unlimited Sequence Lengths in Large Language Models",
      id: "arXiv:2401.04658v2",
      equations: "the recurrence of linear attention with a decay",
    },
    {
      title: "MiniMax-01: Scaling Foundation Models with Lightning Attention",
      id: "arXiv:2501.08313v1",
      equations: "lightning attention; slopes from the published model code",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({ id: "lightning", inputs, rule }),
  reductions: [
    {
      to: "retention",
      when: "the decays are those given, and the scale is K^-½",
      inputs: (own) => ({ own, other: own, ownOptions: { scale: own["q"]!.shape[3]! ** -0.5 } }),
    },
  ],
  layer: (options) => new LightningLayer(options),
  benchShapes,
};
