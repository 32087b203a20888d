import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * S_t = α_t (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ with α_t = exp g_t, o_t = scale · S_tᵀ q_t
 * (Gated DeltaNet, arXiv 2412.06464v3), the transition matrix formed and applied as it stands there.
 */
export const reference: Reference = ({ q, k, v, g, beta, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      let S = Array.from({ length: K }, (_, i) => Float64Array.from(row(initialState, V, b, j, i)));
      for (let t = 0; t < T; t++) {
        const key = row(k, K, b, t, h);
        const query = row(q, K, b, t, h);
        const value = row(v, V, b, t, j);
        const alpha = Math.exp(at(g, b, t, j));
        const strength = at(beta, b, t, j);
        const next = Array.from({ length: K }, () => new Float64Array(V));
        for (let i = 0; i < K; i++) {
          for (let l = 0; l < K; l++) {
            const transition = alpha * ((i === l ? 1 : 0) - strength * key[i]! * key[l]!);
            for (let c = 0; c < V; c++) next[i]![c]! += transition * S[l]![c]!;
          }
          for (let c = 0; c < V; c++) next[i]![c]! += strength * key[i]! * value[c]!;
        }
        S = next;
        const out = row(output, V, b, t, j);
        for (let i = 0; i < K; i++)
          for (let c = 0; c < V; c++) out[c]! += (scale ?? K ** -0.5) * query[i]! * S[i]![c]!;
      }
      for (let i = 0; i < K; i++) row(finalState, V, b, j, i).set(S[i]!);
    }
  }
  return { output, finalState };
};
