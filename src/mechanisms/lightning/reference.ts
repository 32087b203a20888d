import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * kv_t = λ kv_{t−1} + k_t v_tᵀ, o_tᵀ = q_tᵀ kv_t with λ = exp g per head and no scale
 * (Lightning Attention-2, arXiv 2401.04658v2; MiniMax-01, arXiv 2501.08313v1, section 2.2.1).
 */
export const reference: Reference = ({ q, k, v, g, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const lambda = Math.exp(at(g, j));
      for (let c = 0; c < V; c++) {
        const kv = Float64Array.from({ length: K }, (_, i) => at(initialState, b, j, i, c));
        for (let t = 0; t < T; t++) {
          let read = 0;
          for (let i = 0; i < K; i++) {
            kv[i] = lambda * kv[i]! + at(k, b, t, h, i) * at(v, b, t, j, c);
            read += at(q, b, t, h, i) * kv[i]!;
          }
          row(output, V, b, t, j)[c] = (scale ?? 1) * read;
        }
        for (let i = 0; i < K; i++) row(finalState, V, b, j, i)[c] = kv[i]!;
      }
    }
  }
  return { output, finalState };
};
