import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/**
 * o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), j ≤ i where causal, with the positive features
 * φ(x) = exp(ω·x' − |x'|²/2) / √m, x' = x K^−¼ (Performer, arXiv 2009.14794v4), one row of
 * `features [m, K]` per ω.
 *
 * The carried state is `Σ φ(k) vᵀ · e^{−M}`, `Σ φ(k) · e^{−M}` and M, the largest logarithm of a key feature so far
 * (`initialMaximum [B, HV]`), so that no feature overflows.
 */
export const reference: Reference = (
  { q, k, v, features, initialState, initialNormalizer, initialMaximum },
  { causal = true, eps = 1e-6 },
) => {
  const [B, Tq, H, K] = q!.shape as [number, number, number, number];
  const [Tk, HV, V] = v!.shape.slice(1) as [number, number, number];
  const m = features!.shape[0]!;
  const output = zeroValues([B, Tq, HV, V]);
  const finalState = zeroValues([B, HV, m, V]);
  const finalNormalizer = zeroValues([B, HV, m]);
  const finalMaximum = zeroValues([B, HV]);
  const logs = (x: Float64Array): Float64Array => featureLogs(features!, x);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const keys = Array.from({ length: Tk }, (_, s) => logs(row(k, K, b, s, h)));
      const start = initialMaximum === undefined ? Number.NEGATIVE_INFINITY : at(initialMaximum, b, j);
      const largest = (count: number): number =>
        keys.slice(0, count).reduce((most, key) => Math.max(most, ...key), start);
      for (let t = 0; t < Tq; t++) {
        const count = causal ? t + 1 : Tk;
        const shift = largest(count);
        const own = logs(row(q, K, b, t, h));
        const query = own.map((value) => Math.exp(value - Math.max(...own)));
        const out = row(output, V, b, t, j);
        const kept = start === Number.NEGATIVE_INFINITY ? 0 : Math.exp(start - shift);
        let total = kept * dot(query, row(initialNormalizer, m, b, j));
        for (let i = 0; i < m; i++)
          for (let c = 0; c < V; c++) out[c]! += kept * query[i]! * at(initialState, b, j, i, c);
        for (let s = 0; s < count; s++) {
          const weight = dot(
            query,
            keys[s]!.map((value) => Math.exp(value - shift)),
          );
          total += weight;
          for (let c = 0; c < V; c++) out[c]! += weight * at(v, b, s, j, c);
        }
        for (let c = 0; c < V; c++) out[c]! /= total + eps;
      }
      const shift = largest(Tk);
      row(finalMaximum, HV, b)[j] = shift;
      const kept = start === Number.NEGATIVE_INFINITY ? 0 : Math.exp(start - shift);
      for (let i = 0; i < m; i++) {
        const line = row(finalState, V, b, j, i);
        let sum = kept * at(initialNormalizer, b, j, i);
        for (let c = 0; c < V; c++) line[c] = kept * at(initialState, b, j, i, c);
        for (let s = 0; s < Tk; s++) {
          const key = Math.exp(keys[s]![i]! - shift);
          sum += key;
          for (let c = 0; c < V; c++) line[c]! += key * at(v, b, s, j, c);
        }
        row(finalNormalizer, m, b, j)[i] = sum;
      }
    }
  }
  return { output, finalState, finalNormalizer, finalMaximum };
};

/** The logarithms of φ(x), one per row of `features [m, K]`. */
function featureLogs(features: Values, x: Float64Array): Float64Array {
  const [m, K] = features.shape as [number, number];
  const scaled = x.map((value) => value * K ** -0.25);
  const half = dot(scaled, scaled) / 2 + Math.log(m) / 2;
  return Float64Array.from({ length: m }, (_, i) => dot(row(features, K, i), scaled) - half);
}
