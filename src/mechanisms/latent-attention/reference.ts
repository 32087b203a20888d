import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/** U c for `up [H,W,R]`, a head's rows. */
function raised(up: Values, latent: Float64Array, head: number): Float64Array {
  const [, W, R] = up.shape as [number, number, number];
  return Float64Array.from({ length: W }, (_, w) => dot(row(up, R, head, w), latent));
}

/** Tokens `[B,past,W]` and those after them along time. */
function joined(past: Values | undefined, x: Values): Values {
  if (past === undefined) return x;
  const [B, T, W] = x.shape as [number, number, number];
  const before = past.shape[1]!;
  const all = zeroValues([B, before + T, W]);
  for (let b = 0; b < B; b++)
    for (let t = 0; t < before + T; t++)
      row(all, W, b, t).set(t < before ? row(past, W, b, t) : row(x, W, b, t - before));
  return all;
}

/**
 * o_i = Σ_j softmax_j(scale · (q_i·U^K c_j + r_i·p_j)) U^V c_j: keys and values of a head are raised from a latent c that
 * all heads share, beside a key p that they share as it is (DeepSeek-V2, arXiv 2405.04434v5).
 *
 * `q [B,T,HQ,K]`, `r [B,T,HQ,P]`, `c [B,T,R]`, `p [B,T,P]`, `keyUp [HQ,K,R]`, `valueUp [HQ,V,R]` →
 * `output [B,T,HQ,V]`; scale is (K + P)^-½ unless given. Latents and shared keys from before are the state.
 */
export const reference: Reference = (
  { q, r, c, p, keyUp, valueUp, initialLatent, initialSharedKey },
  { causal = true, scale },
) => {
  const [B, T, HQ, K] = q!.shape as [number, number, number, number];
  const P = r!.shape[3]!;
  const [V, R] = valueUp!.shape.slice(1) as [number, number];
  const latents = joined(initialLatent, c!);
  const shared = joined(initialSharedKey, p!);
  const Tk = latents.shape[1]!;
  const output = zeroValues([B, T, HQ, V]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++) {
      const keys = Array.from({ length: Tk }, (_, j) => raised(keyUp!, row(latents, R, b, j), h));
      const values = Array.from({ length: Tk }, (_, j) => raised(valueUp!, row(latents, R, b, j), h));
      for (let i = 0; i < T; i++) {
        const scores = keys.slice(0, causal ? i + Tk - T + 1 : Tk).map((key, j) => {
          let score = dot(row(q, K, b, i, h), key);
          for (let n = 0; n < P; n++) score += at(r, b, i, h, n) * at(shared, b, j, n);
          return (scale ?? (K + P) ** -0.5) * score;
        });
        const largest = scores.reduce((x, y) => Math.max(x, y), Number.NEGATIVE_INFINITY);
        const weights = scores.map((score) => Math.exp(score - largest));
        const total = weights.reduce((x, y) => x + y, 0);
        const out = row(output, V, b, i, h);
        for (const [j, weight] of weights.entries())
          for (let n = 0; n < V; n++) out[n]! += (weight / total) * values[j]![n]!;
      }
    }
  return { output, finalLatent: latents, finalSharedKey: shared };
};
