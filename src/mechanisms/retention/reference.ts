import type { Reference } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/**
 * o_t = Σ_{s≤t} γ^{t−s} (scale q_t · k_s) v_s + γ^{t+1} scale q_tᵀ S_0 with γ = exp g per head, and
 * S_T = γ^T S_0 + Σ_s γ^{T−1−s} k_s v_sᵀ (RetNet, arXiv 2307.08621v4), in its parallel form.
 */
export const reference: Reference = ({ q, k, v, g, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const decay = g === undefined ? Math.log(1 - 2 ** (-5 - j)) : at(g, j);
      for (let t = 0; t < T; t++) {
        const query = row(q, K, b, t, h);
        const out = row(output, V, b, t, j);
        for (let s = 0; s <= t; s++) {
          const weight = Math.exp(decay * (t - s)) * (scale ?? K ** -0.5) * dot(query, row(k, K, b, s, h));
          for (let c = 0; c < V; c++) out[c]! += weight * at(v, b, s, j, c);
        }
        if (initialState === undefined) continue;
        for (let i = 0; i < K; i++) {
          const weight = Math.exp(decay * (t + 1)) * (scale ?? K ** -0.5) * query[i]!;
          for (let c = 0; c < V; c++) out[c]! += weight * at(initialState, b, j, i, c);
        }
      }
      for (let i = 0; i < K; i++) {
        const line = row(finalState, V, b, j, i);
        for (let c = 0; c < V; c++) {
          line[c] = initialState === undefined ? 0 : Math.exp(decay * T) * at(initialState, b, j, i, c);
          for (let s = 0; s < T; s++) {
            line[c]! += Math.exp(decay * (T - 1 - s)) * at(k, b, s, h, i) * at(v, b, s, j, c);
          }
        }
      }
    }
  }
  return { output, finalState };
};
