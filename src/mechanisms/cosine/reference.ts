import type { Reference } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/**
 * o_i = Σ_j cos(q_i, k_j) v_j, j ≤ i where causal, norms with 1e-6 inside the root (cosFormer's and cottention's
 * kernel: Cottention, arXiv 2409.18747v1, without its learned scale).
 */
export const reference: Reference = ({ q, k, v, initialState }, { causal = true, scale = 1 }) => {
  const [B, Tq, H, K] = q!.shape as [number, number, number, number];
  const [Tk, HV, V] = v!.shape.slice(1) as [number, number, number];
  const output = zeroValues([B, Tq, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  const norm = (x: Float64Array): number => Math.sqrt(dot(x, x) + 1e-6);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      for (let t = 0; t < Tq; t++) {
        const query = row(q, K, b, t, h);
        const out = row(output, V, b, t, j);
        for (let i = 0; i < K; i++) {
          for (let c = 0; c < V; c++) {
            out[c]! += ((scale * query[i]!) / norm(query)) * at(initialState, b, j, i, c);
          }
        }
        for (let s = 0; s < (causal ? t + 1 : Tk); s++) {
          const key = row(k, K, b, s, h);
          const weight = (scale * dot(query, key)) / (norm(query) * norm(key));
          for (let c = 0; c < V; c++) out[c]! += weight * at(v, b, s, j, c);
        }
      }
      for (let i = 0; i < K; i++) {
        const line = row(finalState, V, b, j, i);
        for (let c = 0; c < V; c++) {
          line[c] = at(initialState, b, j, i, c);
          for (let s = 0; s < Tk; s++) {
            line[c]! += (at(k, b, s, h, i) / norm(row(k, K, b, s, h))) * at(v, b, s, j, c);
          }
        }
      }
    }
  }
  return { output, finalState };
};
