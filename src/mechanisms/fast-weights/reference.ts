import type { Reference } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/**
 * DPFP: with y = [relu(x), relu(−x)] of length 2K, the features y_i · y_{i−r} for rolls r = 1 … ν
 * (arXiv 2102.11174v3), divided by their sum.
 */
function map(x: Float64Array, rolls: number): Float64Array {
  const y = [...x].map((value) => Math.max(value, 0)).concat([...x].map((value) => Math.max(-value, 0)));
  const width = y.length;
  const features: number[] = [];
  for (let r = 1; r <= rolls; r++)
    for (let i = 0; i < width; i++) features.push(y[i]! * y[(i + r * (width - 1)) % width]!);
  const sum = features.reduce((total, value) => total + value, 0);
  return Float64Array.from(features, (value) => value / (sum + 1e-6));
}

/**
 * W_t = W_{t−1} + β_t (v_t − W_{t−1} φ(k_t)) φ(k_t)ᵀ, o_t = W_t φ(q_t) (Linear transformers are secretly fast weight
 * programmers, arXiv 2102.11174v3), φ DPFP with ν = 3 and sum normalisation (section 4.2).
 */
export const reference: Reference = ({ q, k, v, beta, initialState }, { scale }) => {
  const rolls = 3;
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [HV, V] = v!.shape.slice(2) as [number, number];
  const features = 2 * K * rolls;
  const output = zeroValues([B, T, HV, V]);
  const finalState = zeroValues([B, HV, features, V]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      const W = Array.from({ length: features }, (_, i) => Float64Array.from(row(initialState, V, b, j, i)));
      for (let t = 0; t < T; t++) {
        const key = map(row(k, K, b, t, h), rolls);
        const query = map(row(q, K, b, t, h), rolls);
        for (let c = 0; c < V; c++) {
          let recalled = 0;
          for (let i = 0; i < features; i++) recalled += W[i]![c]! * key[i]!;
          const written = at(beta, b, t, j) * (at(v, b, t, j, c) - recalled);
          let read = 0;
          for (let i = 0; i < features; i++) {
            W[i]![c]! += written * key[i]!;
            read += W[i]![c]! * query[i]!;
          }
          row(output, V, b, t, j)[c] = (scale ?? 1) * read;
        }
      }
      for (let i = 0; i < features; i++) row(finalState, V, b, j, i).set(W[i]!);
    }
  }
  return { output, finalState };
};
