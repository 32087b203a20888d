import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/** What sliding-window attention is told beyond its inputs. */
export interface SlidingWindowOptions {
  /** Tokens of exact softmax: a token itself and window − 1 before it. 0 leaves linear attention alone. */
  readonly window: number;
  /** `joint`: one denominator for both (LoLCATs); `gated`: each with its own, weighed by a gate. Joint unless given. */
  readonly join?: "joint" | "gated";
  /** Multiplies q·k of the softmax; K^-½ unless given. */
  readonly scale?: number;
  /** Added to the denominator of the linear part where it has its own; 1e-6 unless given. */
  readonly eps?: number;
}

/** φ(x) = max([softmax(xW), softmax(−xW)], 1e-12) for `features [HQ,K,F]`, elu(x) + 1 without. */
function map(x: Float64Array, features: Values | undefined, head: number): Float64Array {
  if (features === undefined) return x.map((value) => (value < 0 ? Math.exp(value) : value + 1));
  const F = features.shape[2]!;
  const logits = Float64Array.from({ length: F }, (_, f) =>
    x.reduce((sum, value, i) => sum + value * at(features, head, i, f), 0),
  );
  const half = (sign: number): number[] => {
    const largest = logits.reduce((a, b) => Math.max(a, sign * b), Number.NEGATIVE_INFINITY);
    const powers = Array.from(logits, (value) => Math.exp(sign * value - largest));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => Math.max(power / sum, 1e-12));
  };
  return Float64Array.from([...half(1), ...half(-1)]);
}

/** Everything about one head of one batch row: the buffer of earlier tokens and the new ones in one list. */
interface Head {
  readonly keys: readonly Float64Array[];
  readonly mappedKeys: readonly Float64Array[];
  readonly values: readonly Float64Array[];
  /** State and normaliser of what lies before the buffer: S [F,V], z [F]. */
  readonly state: readonly Float64Array[];
  readonly normalizer: Float64Array;
}

/** Numerator and denominator of the linear part over tokens [0, end) and the state. */
function linear(
  head: Head,
  query: Float64Array,
  end: number,
  V: number,
): { sum: Float64Array; total: number } {
  const sum = new Float64Array(V);
  let total = dot(query, head.normalizer);
  for (const [f, line] of head.state.entries()) for (let c = 0; c < V; c++) sum[c]! += query[f]! * line[c]!;
  for (let j = 0; j < end; j++) {
    const weight = dot(query, head.mappedKeys[j]!);
    total += weight;
    for (let c = 0; c < V; c++) sum[c]! += weight * head.values[j]![c]!;
  }
  return { sum, total };
}

/** Numerator and denominator of exp(score − largest score) over tokens [begin, end). */
function near(head: Head, query: Float64Array, begin: number, end: number, V: number) {
  const scores = head.keys.slice(begin, end).map((key) => dot(query, key));
  const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const sum = new Float64Array(V);
  let total = 0;
  for (const [n, score] of scores.entries()) {
    const weight = Math.exp(score - largest);
    total += weight;
    for (let c = 0; c < V; c++) sum[c]! += weight * head.values[begin + n]![c]!;
  }
  return { sum, total };
}

/**
 * A window of softmax joined with linear attention over everything before it, causal:
 *
 * joint: o_i = (w Σ_near e^{s_ij − m_i} v_j + l Σ_far φ(q_i)·φ(k_j) v_j) / (w Σ_near e^{s_ij − m_i} + l Σ_far φ(q_i)·φ(k_j)),
 * m_i the largest score of the window (LoLCATs, arXiv 2410.10254v3);
 * gated: o_i = g · softmax over the window + (1 − g) · linear over what lies before (Infini-attention,
 * arXiv 2404.07143v1).
 *
 * `q [B,T,HQ,K]`, `k [B,T,HKV,K]`, `v [B,T,HKV,V]`; `queryFeatures`, `keyFeatures [HQ,K,F]`; `windowFactor`,
 * `linearFactor [HQ]`, 1 where absent; `gate [B,T,HQ]`. The carried state is the last window − 1 keys and values and,
 * per query head, `Σ φ(k) vᵀ` and `Σ φ(k)` over all before them.
 */
export const reference = ((inputs: Readonly<Record<string, Values>>, options: SlidingWindowOptions) => {
  const { q, k, v, initialKeys, initialValues, initialState, initialNormalizer } = inputs;
  const [B, T, HQ, K] = q!.shape as [number, number, number, number];
  const [HKV, V] = v!.shape.slice(2) as [number, number];
  const F = inputs.keyFeatures === undefined ? K : 2 * inputs.keyFeatures.shape[2]!;
  const buffered = initialKeys?.shape[1] ?? 0;
  const kept = Math.min(Math.max(options.window - 1, 0), buffered + T);
  const scale = options.scale ?? K ** -0.5;
  const results = {
    output: zeroValues([B, T, HQ, V]),
    finalState: zeroValues([B, HQ, F, V]),
    finalNormalizer: zeroValues([B, HQ, F]),
    finalKeys: zeroValues([B, kept, HKV, K]),
    finalValues: zeroValues([B, kept, HKV, V]),
  };
  const list = (x: Values, width: number, b: number, h: number): Float64Array[] =>
    Array.from({ length: x.shape[1]! }, (_, t) => row(x, width, b, t, h));
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++) {
      const keyHead = Math.floor(h / (HQ / HKV));
      const keys = [...(initialKeys ? list(initialKeys, K, b, keyHead) : []), ...list(k!, K, b, keyHead)];
      const values = [
        ...(initialValues ? list(initialValues, V, b, keyHead) : []),
        ...list(v!, V, b, keyHead),
      ];
      const head: Head = {
        ...{ keys, values, mappedKeys: keys.map((key) => map(key, inputs.keyFeatures, h)) },
        state: Array.from({ length: F }, (_, f) => row(initialState, V, b, h, f)),
        normalizer: row(initialNormalizer, F, b, h),
      };
      for (let t = 0; t < T; t++) {
        const query = row(q, K, b, t, h);
        const end = buffered + t + 1;
        const begin = Math.max(0, end - options.window);
        const exact = near(
          head,
          query.map((value) => scale * value),
          begin,
          end,
          V,
        );
        const rest = linear(head, map(query, inputs.queryFeatures, h), begin, V);
        join(inputs, options, [b, t, h], exact, rest, row(results.output, V, b, t, h));
      }
      carry(head, buffered + T - kept, results, b, h, keyHead);
    }
  return results;
}) satisfies (
  inputs: Readonly<Record<string, Values>>,
  options: SlidingWindowOptions,
) => ReturnType<Reference>;

interface Part {
  readonly sum: Float64Array;
  readonly total: number;
}

function join(
  inputs: Readonly<Record<string, Values>>,
  options: SlidingWindowOptions,
  [b, t, h]: readonly [number, number, number],
  exact: Part,
  rest: Part,
  out: Float64Array,
): void {
  const { windowFactor, linearFactor, gate } = inputs;
  const { eps = 1e-6 } = options;
  for (let c = 0; c < out.length; c++) {
    if (options.join === "gated") {
      const share = at(gate, b, t, h);
      const window = exact.total === 0 ? 0 : exact.sum[c]! / exact.total;
      out[c] = share * window + (1 - share) * (rest.sum[c]! / (rest.total + eps));
    } else {
      const w = windowFactor === undefined ? 1 : at(windowFactor, h);
      const l = linearFactor === undefined ? 1 : at(linearFactor, h);
      out[c] = (w * exact.sum[c]! + l * rest.sum[c]!) / (w * exact.total + l * rest.total);
    }
  }
}

/** The last tokens stay as they are; the others go into the state. */
function carry(
  head: Head,
  end: number,
  results: Readonly<Record<"finalState" | "finalNormalizer" | "finalKeys" | "finalValues", Values>>,
  b: number,
  h: number,
  keyHead: number,
): void {
  const V = head.values[0]?.length ?? 0;
  const normalizer = row(results.finalNormalizer, head.normalizer.length, b, h);
  normalizer.set(head.normalizer);
  for (const [f, line] of head.state.entries()) {
    const to = row(results.finalState, V, b, h, f);
    to.set(line);
    for (let j = 0; j < end; j++) {
      normalizer[f]! += head.mappedKeys[j]![f]!;
      for (let c = 0; c < V; c++) to[c]! += head.mappedKeys[j]![f]! * head.values[j]![c]!;
    }
  }
  for (let j = end; j < head.keys.length; j++) {
    row(results.finalKeys, head.keys[j]!.length, b, j - end, keyHead).set(head.keys[j]!);
    row(results.finalValues, V, b, j - end, keyHead).set(head.values[j]!);
  }
}
