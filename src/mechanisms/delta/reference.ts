import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * v̄_t = W_{t−1} k_t, W_t = W_{t−1} + β_t (v_t − v̄_t) k_tᵀ, o_t = scale · W_t q_t
 * (DeltaNet, arXiv 2406.06484v6, section 2.2), with W = Sᵀ.
 */
export const reference: Reference = ({ q, k, v, beta, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const W = Array.from({ length: V }, (_, c) =>
        Float64Array.from({ length: K }, (_, i) => at(initialState, b, j, i, c)),
      );
      for (let t = 0; t < T; t++) {
        const key = row(k, K, b, t, h);
        const query = row(q, K, b, t, h);
        for (let c = 0; c < V; c++) {
          const line = W[c]!;
          const recalled = line.reduce((sum, weight, i) => sum + weight * key[i]!, 0);
          const written = at(beta, b, t, j) * (at(v, b, t, j, c) - recalled);
          let read = 0;
          for (let i = 0; i < K; i++) {
            line[i]! += written * key[i]!;
            read += line[i]! * query[i]!;
          }
          row(output, V, b, t, j)[c] = (scale ?? K ** -0.5) * read;
        }
      }
      for (let i = 0; i < K; i++) for (let c = 0; c < V; c++) row(finalState, V, b, j, i)[c] = W[c]![i]!;
    }
  }
  return { output, finalState };
};
