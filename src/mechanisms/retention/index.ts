import { tensor } from "../../autograd/tensor.ts";
import type { Mechanism } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, headGate, initialState, key, matrixState, query, value } from "../rules.ts";
import { RetentionLayer } from "./layer.ts";
import { reference } from "./reference.ts";
import { retentionDecays, rule } from "./rule.ts";

const inputs = { q: query, k: key, v: value, g: { ...headGate, optional: true }, initialState };

/** RetNet's retention: every head forgets at a rate of its own, the same for all tokens. */
export const retention: Mechanism = {
  id: "retention",
  title: "Retention (RetNet)",
  equation: "S ← γS + kvᵀ, o = Sᵀq/√K, γ fixed per head",
  use: "A fixed decay per head with rotary positions: cheap, stable to train, a known horizon for every head.",
  sources: [
    {
      title: "Retentive Network: A Successor to Transformer for Large Language Models",
      id: "arXiv:2307.08621v4",
      equations:
        "the parallel, recurrent and chunkwise forms; gated multi-scale retention and its decays (section 2)",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({
    id: "retention",
    inputs,
    rule,
    prepare: ({ q, k, v, g, initialState }) => {
      const heads = v!.shape[2]!;
      const decays = g ?? tensor(v!.device, retentionDecays(heads), [heads], { dtype: v!.dtype });
      return { inputs: { q: q!, k: k!, v: v!, g: decays, initialState } };
    },
  }),
  reductions: [
    {
      to: "mamba2",
      when: "every token has the head's decay, and the scale is K^-½",
      inputs: (own) => {
        const { q, k, v, initialState } = own;
        const [B, T, HV] = v!.shape as [number, number, number];
        const decays = own["g"]?.data ?? Float64Array.from(retentionDecays(HV));
        const g = {
          shape: [B, T, HV],
          data: Float64Array.from({ length: B * T * HV }, (_, i) => decays[i % HV]!),
        };
        const scale = q!.shape[3]! ** -0.5;
        return {
          own,
          other: { q: q!, k: k!, v: v!, g, ...(initialState && { initialState }) },
          otherOptions: { scale },
        };
      },
    },
  ],
  layer: (options) => new RetentionLayer(options),
  benchShapes,
};
