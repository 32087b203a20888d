import type { Mechanism, Values } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import { traitsOf } from "../recurrence/traits.ts";
import { benchShapes, initialState, keyGate, matrixState, query, value } from "../rules.ts";
import { zeroValues } from "../values.ts";
import { Hgrn2Layer } from "./layer.ts";
import { reference } from "./reference.ts";
import { type Hgrn2Inputs, hgrn2Inputs, rule } from "./rule.ts";

const inputs = { q: query, v: value, g: keyGate, initialState };

/** HGRN2: gated linear attention whose keys are what the gates leave free. */
export const hgrn2: Mechanism = {
  id: "hgrn2",
  title: "HGRN2",
  equation: "S ← diag(exp g)S + (1 − exp g)vᵀ, o = Sᵀq",
  use: "Gates that are keys at once: the fewest projections of the gated members, forgetting less the deeper a layer lies.",
  sources: [
    {
      title: "HGRN2: Gated Linear RNNs with State Expansion",
      id: "arXiv:2404.07904v2",
      equations: "state expansion by outer products, lower bounds of the gates",
    },
  ],
  inputs,
  state: { state: matrixState },
  traits: traitsOf(rule),
  reference,
  forms: recurrenceForms({
    id: "hgrn2",
    inputs,
    rule,
    prepare: (given) => ({ inputs: hgrn2Inputs(given as unknown as Hgrn2Inputs) }),
  }),
  reductions: [
    {
      to: "gla",
      when: "its keys are 1 − exp(g) and there are as many heads of queries as of values",
      inputs: (own) => {
        const { q, g } = own as { q: Values; g: Values };
        const times = g.shape[2]! / q.shape[2]!;
        const queries = repeated(q, times);
        return {
          own: { ...own, q: queries },
          other: { ...own, q: queries, k: { shape: g.shape, data: g.data.map((gate) => -Math.expm1(gate)) } },
        };
      },
    },
  ],
  layer: (options) => new Hgrn2Layer(options),
  benchShapes,
};

/** Every head as often as asked. */
function repeated({ data, shape }: Values, times: number): Values {
  const [B, T, H, K] = shape as [number, number, number, number];
  const result = zeroValues([B, T, H * times, K]);
  for (let at = 0; at < result.data.length; at++) {
    const head = Math.floor(at / K);
    const from = Math.floor(head / (H * times)) * H + Math.floor((head % (H * times)) / times);
    result.data[at] = data[from * K + (at % K)]!;
  }
  return result;
}
