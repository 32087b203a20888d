import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/** S_t = diag(exp g_t) S_{t−1} + k_t v_tᵀ, o_t = scale · S_tᵀ q_t (arXiv 2312.06635v6). */
export const reference: Reference = ({ q, k, v, g, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const S = Array.from({ length: K }, (_, i) => Float64Array.from(row(initialState, V, b, j, i)));
      for (let t = 0; t < T; t++) {
        const value = row(v, V, b, t, j);
        const out = row(output, V, b, t, j);
        for (let i = 0; i < K; i++) {
          const decay = Math.exp(at(g, b, t, j, i));
          const key = at(k, b, t, h, i);
          const query = (scale ?? K ** -0.5) * at(q, b, t, h, i);
          for (let c = 0; c < V; c++) {
            S[i]![c] = decay * S[i]![c]! + key * value[c]!;
            out[c]! += query * S[i]![c]!;
          }
        }
      }
      for (let i = 0; i < K; i++) row(finalState, V, b, j, i).set(S[i]!);
    }
  }
  return { output, finalState };
};
