import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/** What Linformer attention is told beyond its inputs. */
export interface LinformerOptions {
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
}

/** E x, `[M,W]`, over the tokens of one head; shorter inputs use the first columns of E `[H or 1,M,L]`. */
function project(projection: Values, x: Values, b: number, h: number): Float64Array[] {
  const [heads, M] = projection.shape as [number, number];
  const [T, H, W] = x.shape.slice(1) as [number, number, number];
  const own = heads === 1 ? 0 : Math.floor((h * heads) / H);
  return Array.from({ length: M }, (_, m) => {
    const sum = new Float64Array(W);
    for (let t = 0; t < T; t++)
      for (let c = 0; c < W; c++) sum[c]! += at(projection, own, m, t) * at(x, b, t, h, c);
    return sum;
  });
}

/**
 * o_i = Σ_m softmax_m(scale · q_i·(E k)_m) (F v)_m (Linformer, arXiv 2006.04768v3, section 4), every query with every key.
 *
 * `q [B,T,H,K]`, `k [B,Tk,H,K]`, `v [B,Tk,H,V]`; `keyProjection` E and `valueProjection` F `[H or 1,M,L]`, L ≥ Tk. One
 * matrix for all heads where the first axis is 1; F = E (key-value sharing) where F is absent.
 */
export const reference = ((inputs: Readonly<Record<string, Values>>, options: LinformerOptions = {}) => {
  const { q, k, v, keyProjection, valueProjection = keyProjection } = inputs;
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const V = v!.shape[3]!;
  const scale = options.scale ?? K ** -0.5;
  const output = zeroValues([B, T, H, V]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const keys = project(keyProjection!, k!, b, h);
      const values = project(valueProjection!, v!, b, h);
      for (let t = 0; t < T; t++) {
        const scores = keys.map((key) => scale * dot(row(q, K, b, t, h), key));
        const largest = scores.reduce((x, y) => Math.max(x, y), Number.NEGATIVE_INFINITY);
        const weights = scores.map((score) => Math.exp(score - largest));
        const total = weights.reduce((x, y) => x + y, 0);
        const out = row(output, V, b, t, h);
        for (const [m, weight] of weights.entries())
          for (let c = 0; c < V; c++) out[c]! += (weight / total) * values[m]![c]!;
      }
    }
  return { output };
}) satisfies Reference;
