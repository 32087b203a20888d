import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * h_t = A_t h_{t−1} + B_t x_tᵀ, y_t = C_tᵀ h_t (State space duality, arXiv 2405.21060v1, with a scalar A), B as k,
 * C as q, Δx as v, A_t = exp g_t and no scale.
 */
export const reference: Reference = ({ q, k, v, g, initialState }, { scale }) => {
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const state = Array.from({ length: K }, (_, i) => Float64Array.from(row(initialState, V, b, j, i)));
      for (let t = 0; t < T; t++) {
        const A = Math.exp(at(g, b, t, j));
        for (let i = 0; i < K; i++) {
          for (let c = 0; c < V; c++) {
            state[i]![c] = A * state[i]![c]! + at(k, b, t, h, i) * at(v, b, t, j, c);
            row(output, V, b, t, j)[c]! += (scale ?? 1) * at(q, b, t, h, i) * state[i]![c]!;
          }
        }
      }
      for (let i = 0; i < K; i++) row(finalState, V, b, j, i).set(state[i]!);
    }
  }
  return { output, finalState };
};
