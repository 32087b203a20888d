import type { Reference, Values } from "../mechanism.ts";
import { dot, row, zeroValues } from "../values.ts";

/** What LSH attention is told beyond its inputs. */
export interface LshOptions {
  /** Tokens of a chunk of the sorted sequence; a token looks at its own chunk and the one before. */
  readonly chunk: number;
  readonly causal?: boolean;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
}

/** arg max of [xR; −xR]: the bucket of x under `rotations [rounds,K,half]` in one round. */
function bucketOf(x: Float64Array, rotations: Values, round: number): number {
  const [, K, half] = rotations.shape as [number, number, number];
  const rotated = Array.from({ length: half }, (_, n) => {
    let sum = 0;
    for (let i = 0; i < K; i++) sum += x[i]! * rotations.data[(round * K + i) * half + n]!;
    return sum;
  });
  const both = [...rotated, ...rotated.map((value) => -value)];
  return both.reduce((best, value, n) => (value > both[best]! ? n : best), 0);
}

/** For every token those that share its chunk of the sorted order, or the chunk before. */
function neighbours(buckets: readonly number[], chunk: number): number[][] {
  const order = buckets.map((_, t) => t).sort((a, b) => buckets[a]! - buckets[b]! || a - b);
  const found: number[][] = buckets.map(() => []);
  for (const [place, token] of order.entries()) {
    const at = Math.floor(place / chunk);
    found[token] = order.slice(Math.max(0, at - 1) * chunk, (at + 1) * chunk);
  }
  return found;
}

/**
 * o_i = Σ_j softmax_j(scale · q_i·k_j) v_j with k = q / |q| over the tokens j that hashing brings together with i in any of
 * the rounds, i itself only where there is nothing else (Reformer, arXiv 2001.04451v2, section 2). A pair found in
 * several rounds counts once: joining the rounds by their log-sum-exp with log(count) taken off gives the same sum.
 *
 * `q [B,T,H,K]`, `v [B,T,H,V]`, `rotations [rounds,K,buckets/2]` → `output [B,T,H,V]`. Sorted by bucket, then by position,
 * tokens are cut into chunks; causal tokens see only themselves and those before them.
 */
export const reference = ((inputs: Readonly<Record<string, Values>>, options: LshOptions) => {
  const { q, v, rotations } = inputs;
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const V = v!.shape[3]!;
  const { chunk, causal = true, scale = K ** -0.5 } = options;
  const output = zeroValues([B, T, H, V]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const queries = Array.from({ length: T }, (_, t) => row(q, K, b, t, h));
      const norms = queries.map((x) => Math.sqrt(dot(x, x) + 1e-6));
      const rounds = Array.from({ length: rotations!.shape[0]! }, (_, round) =>
        neighbours(
          queries.map((x) => bucketOf(x, rotations!, round)),
          chunk,
        ),
      );
      for (let i = 0; i < T; i++) {
        const seen = new Set(
          rounds.flatMap((round) => round[i]!).filter((j) => j !== i && (!causal || j < i)),
        );
        if (seen.size === 0) seen.add(i);
        const tokens = [...seen];
        const scores = tokens.map((j) => (scale * dot(queries[i]!, queries[j]!)) / norms[j]!);
        const largest = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - largest));
        const total = weights.reduce((x, y) => x + y, 0);
        const out = row(output, V, b, i, h);
        for (const [n, j] of tokens.entries())
          for (let c = 0; c < V; c++) out[c]! += (weights[n]! / total) * row(v, V, b, j, h)[c]!;
      }
    }
  return { output };
}) satisfies (inputs: Readonly<Record<string, Values>>, options: LshOptions) => ReturnType<Reference>;
