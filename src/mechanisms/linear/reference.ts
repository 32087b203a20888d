import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/** elu(x) + 1. */
function map(x: Values): Values {
  return { shape: x.shape, data: x.data.map((value) => (value < 0 ? Math.exp(value) : value + 1)) };
}

/**
 * o_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j), j ≤ i where causal and all j otherwise, φ = elu + 1
 * (Transformers are RNNs, arXiv 2006.16236v3), as weights over pairs of tokens.
 */
export const reference: Reference = (inputs, { causal = true, scale = 1, eps = 1e-6 }) => {
  const { v, initialState, initialNormalizer } = inputs;
  const q = map(inputs.q!);
  const k = map(inputs.k!);
  const [B, Tq, H, K] = q.shape as [number, number, number, number];
  const [Tk, HV, V] = v!.shape.slice(1) as [number, number, number];
  const output = zeroValues([B, Tq, HV, V]);
  const finalState = zeroValues([B, HV, K, V]);
  const finalNormalizer = zeroValues([B, HV, K]);
  for (let b = 0; b < B; b++) {
    for (let j = 0; j < HV; j++) {
      const h = Math.floor(j / (HV / H));
      for (let t = 0; t < Tq; t++) {
        const query = row(q, K, b, t, h);
        const out = row(output, V, b, t, j);
        let total = scale * dot(query, row(initialNormalizer, K, b, j));
        for (let i = 0; i < K; i++) {
          for (let c = 0; c < V; c++) out[c]! += scale * query[i]! * at(initialState, b, j, i, c);
        }
        for (let s = 0; s < (causal ? t + 1 : Tk); s++) {
          const weight = scale * dot(query, row(k, K, b, s, h));
          total += weight;
          for (let c = 0; c < V; c++) out[c]! += weight * at(v, b, s, j, c);
        }
        for (let c = 0; c < V; c++) out[c]! /= total + eps;
      }
      for (let i = 0; i < K; i++) {
        const line = row(finalState, V, b, j, i);
        for (let c = 0; c < V; c++) line[c] = at(initialState, b, j, i, c);
        let sum = at(initialNormalizer, b, j, i);
        for (let s = 0; s < Tk; s++) {
          sum += at(k, b, s, h, i);
          for (let c = 0; c < V; c++) line[c]! += at(k, b, s, h, i) * at(v, b, s, j, c);
        }
        row(finalNormalizer, K, b, j)[i] = sum;
      }
    }
  }
  return { output, finalState, finalNormalizer };
};
