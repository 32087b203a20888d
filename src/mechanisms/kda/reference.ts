import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * S_t = (I − β_t k_t k_tᵀ) diag(exp g_t) S_{t−1} + β_t k_t v_tᵀ, o_t = scale · S_tᵀ q_t
 * (Kimi Linear, arXiv 2510.26692v2).
 */
export const reference: Reference = ({ q, k, v, g, beta, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const S = Array.from({ length: K }, (_, i) => Float64Array.from(row(initialState, V, b, j, i)));
      for (let t = 0; t < T; t++) {
        const key = row(k, K, b, t, h);
        const query = row(q, K, b, t, h);
        for (let i = 0; i < K; i++) {
          const decay = Math.exp(at(g, b, t, j, i));
          for (let c = 0; c < V; c++) S[i]![c]! *= decay;
        }
        for (let c = 0; c < V; c++) {
          let recalled = 0;
          for (let i = 0; i < K; i++) recalled += key[i]! * S[i]![c]!;
          const written = at(beta, b, t, j) * (at(v, b, t, j, c) - recalled);
          let read = 0;
          for (let i = 0; i < K; i++) {
            S[i]![c]! += key[i]! * written;
            read += query[i]! * S[i]![c]!;
          }
          row(output, V, b, t, j)[c] = (scale ?? K ** -0.5) * read;
        }
      }
      for (let i = 0; i < K; i++) row(finalState, V, b, j, i).set(S[i]!);
    }
  }
  return { output, finalState };
};
