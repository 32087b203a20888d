/** Mechanisms made for tests of the suite: right or wrong in one place of the arithmetic, as asked. */
import { type Tensors, tensor } from "../../../src/autograd/tensor.ts";
import { absent, type Form, type Mechanism, type Reference } from "../../../src/mechanisms/mechanism.ts";
import { recurrenceForms } from "../../../src/mechanisms/recurrence/forms.ts";
import { traitsOf } from "../../../src/mechanisms/recurrence/traits.ts";
import { mechanism as find } from "../../../src/mechanisms/registry.ts";
import { initialNormalizer, initialState, scalarGate } from "../../../src/mechanisms/rules.ts";
import { at, dot, row, zeroValues } from "../../../src/mechanisms/values.ts";

const positive = { axes: "B T H K", domain: "above 0", sample: (normal: number) => Math.abs(normal) + 0.1 };
const inputs = {
  q: positive,
  k: positive,
  v: find("linear").inputs["v"]!,
  g: scalarGate,
  initialState,
  initialNormalizer,
};
const rule = { decay: "scalar", write: "add", normalize: true, scale: 1 } as const;

/** S and z decay alike; o = Sᵀq / (z·q + eps), token after token. */
const decayed: Reference = ({ q, k, v, g, initialState: S0, initialNormalizer: z0 }, { eps = 1e-6 }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  const finalNormalizer = zeroValues([B, HV, K]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const z = row(finalNormalizer, K, b, j);
      for (let i = 0; i < K; i++) {
        z[i] = at(z0, b, j, i);
        row(finalState, V, b, j, i).set(row(S0, V, b, j, i));
      }
      for (let t = 0; t < T; t++) {
        const decay = Math.exp(at(g, b, t, j));
        const out = row(output, V, b, t, j);
        for (let i = 0; i < K; i++) {
          const line = row(finalState, V, b, j, i);
          z[i] = decay * z[i]! + at(k, b, t, h, i);
          for (let c = 0; c < V; c++) {
            line[c] = decay * line[c]! + at(k, b, t, h, i) * at(v, b, t, j, c);
            out[c]! += at(q, b, t, h, i) * line[c]!;
          }
        }
        const total = dot(row(q, K, b, t, h), z) + eps;
        for (let c = 0; c < V; c++) out[c]! /= total;
      }
    }
  }
  return { output, finalState, finalNormalizer };
};

/** Decayed sums over decayed sums; `broken` leaves the normaliser as it is. */
export function normalizedDecay(broken: boolean): Mechanism {
  const forms = recurrenceForms({ id: "planted-decay", inputs, rule });
  const { g: _, ...gateless } = inputs;
  const still = recurrenceForms({ id: "planted-decay", inputs: gateless, rule: { ...rule, decay: "none" } });
  const chunkwise: Form = (given, options) => {
    const results = forms.chunkwise(given, options);
    if (!broken) return results;
    const { g: _, ...rest } = given;
    return {
      ...results,
      finalNormalizer: still.chunkwise({ ...rest }, options)["finalNormalizer"],
    };
  };
  return {
    ...find("linear"),
    id: "planted-decay",
    inputs,
    traits: traitsOf(rule),
    reference: decayed,
    forms: { ...forms, chunkwise },
    reductions: [],
  };
}

/** Exact attention key after key over a running maximum; without `rescales` what was summed keeps its old unit. */
export function streamingSoftmax(rescales: boolean): Mechanism {
  const own = find("softmax");
  const attend = (
    q: Float64Array,
    keys: Float64Array[],
    values: Float64Array[],
    scale: number,
  ): Float64Array => {
    let [most, sum] = [Number.NEGATIVE_INFINITY, 0];
    const out = new Float64Array(values[0]!.length);
    for (const [s, key] of keys.entries()) {
      const score = scale * dot(q, key);
      const next = Math.max(most, score);
      const factor = rescales && most !== Number.NEGATIVE_INFINITY ? Math.exp(most - next) : 1;
      const weight = Math.exp(score - next);
      sum = sum * factor + weight;
      for (let c = 0; c < out.length; c++) out[c] = out[c]! * factor + weight * values[s]![c]!;
      most = next;
    }
    return out.map((value) => value / sum);
  };
  const chunkwise: Form = (given: Tensors, options) => {
    const read = (name: string) => {
      const x = given[name];
      return x && { shape: x.shape, data: Float64Array.from(x.dataSync()) };
    };
    const [q, k, v, pastK, pastV] = ["q", "k", "v", "initialKeys", "initialValues"].map(read);
    const [B, T, HQ, K] = q!.shape as [number, number, number, number];
    const [HKV, V] = v!.shape.slice(2) as [number, number];
    const output = zeroValues([B, T, HQ, V]);
    for (let b = 0; b < B; b++)
      for (let t = 0; t < T; t++)
        for (let h = 0; h < HQ; h++) {
          const head = Math.floor(h / (HQ / HKV));
          const upTo = (x: typeof q, count: number, width: number): Float64Array[] =>
            Array.from({ length: x === undefined ? 0 : count }, (_, s) => row(x, width, b, s, head));
          const keys = [...upTo(pastK, pastK?.shape[1] ?? 0, K), ...upTo(k, t + 1, K)];
          const values = [...upTo(pastV, pastV?.shape[1] ?? 0, V), ...upTo(v, t + 1, V)];
          const scale = options?.scale ?? K ** -0.5;
          row(output, V, b, t, h).set(attend(row(q, K, b, t, h), keys, values, scale));
        }
    const { device, dtype } = given["q"]!;
    return { output: tensor(device, output.data, output.shape, { dtype }) };
  };
  const none = absent("Made for one form.");
  return { ...own, id: "planted-softmax", forms: { recurrent: none, step: none, parallel: none, chunkwise } };
}
