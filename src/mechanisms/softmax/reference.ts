import type { Reference, Values } from "../mechanism.ts";
import { at, dot, row, zeroValues } from "../values.ts";

/** What softmax attention is told beyond its inputs. */
export interface SoftmaxOptions {
  /** Query i sees keys up to i + Tk − T: the last query sees all. True unless given. */
  readonly causal?: boolean;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /** A causal query sees its own position and the window − 1 before it. */
  readonly window?: number;
}

/**
 * The weights of attention, `[B,HQ,T,Tk]`: exp(score) / Σ exp(score) over the keys that a query sees, zeros where it
 * sees none. `keyMask [B,Tk]` hides keys where it is 0; `bias [B,HQ,T,Tk]` is added to the scaled scores.
 */
export function softmaxWeights(
  inputs: Readonly<Record<string, Values>>,
  options: SoftmaxOptions = {},
): Values {
  const { q, k, keyMask, bias } = inputs;
  const [B, T, HQ, K] = q!.shape as [number, number, number, number];
  const [Tk, HKV] = k!.shape.slice(1) as [number, number];
  const { causal = true, scale = K ** -0.5, window = Number.POSITIVE_INFINITY } = options;
  const weights = zeroValues([B, HQ, T, Tk]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++)
      for (let i = 0; i < T; i++) {
        const position = i + Tk - T;
        const scores = row(weights, Tk, b, h, i).fill(Number.NEGATIVE_INFINITY);
        for (let j = 0; j < Tk; j++) {
          if (causal && (j > position || j <= position - window)) continue;
          if (keyMask !== undefined && at(keyMask, b, j) === 0) continue;
          const score = dot(row(q, K, b, i, h), row(k, K, b, j, Math.floor(h / (HQ / HKV))));
          scores[j] = scale * score + at(bias, b, h, i, j);
        }
        normalize(scores);
      }
  return weights;
}

/** Scores to weights, in place. */
function normalize(scores: Float64Array): void {
  const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  if (largest === Number.NEGATIVE_INFINITY) {
    scores.fill(0);
    return;
  }
  let sum = 0;
  for (let j = 0; j < scores.length; j++) {
    scores[j] = Math.exp(scores[j]! - largest);
    sum += scores[j]!;
  }
  for (let j = 0; j < scores.length; j++) scores[j]! /= sum;
}

/** Tokens `[B,past,H,W]` and those after them along time. */
function joined(past: Values | undefined, x: Values): Values {
  if (past === undefined) return x;
  const [B, T, H, W] = x.shape as [number, number, number, number];
  const before = past.shape[1]!;
  const all = zeroValues([B, before + T, H, W]);
  for (let b = 0; b < B; b++)
    for (let t = 0; t < before + T; t++)
      for (let h = 0; h < H; h++)
        row(all, W, b, t, h).set(t < before ? row(past, W, b, t, h) : row(x, W, b, t - before, h));
  return all;
}

/**
 * o_i = Σ_j softmax_j(scale · q_i·k_j + bias) v_j, query head h with key head floor(h / (HQ/HKV)) (Attention Is All You
 * Need, arXiv 1706.03762v7): `q [B,T,HQ,K]`, `k [B,Tk,HKV,K]`, `v [B,Tk,HKV,V]` → `output [B,T,HQ,V]`. Keys and
 * values from before stand in front of the others; all of them are the state.
 */
export const reference = ((given: Readonly<Record<string, Values>>, options: SoftmaxOptions = {}) => {
  const { q, initialKeys, initialValues } = given;
  const k = joined(initialKeys, given.k!);
  const v = joined(initialValues, given.v!);
  const [B, T, HQ] = q!.shape as [number, number, number];
  const [Tk, HKV, V] = v.shape.slice(1) as [number, number, number];
  const weights = softmaxWeights({ ...given, k }, options);
  const output = zeroValues([B, T, HQ, V]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++)
      for (let i = 0; i < T; i++) {
        const out = row(output, V, b, i, h);
        for (let j = 0; j < Tk; j++) {
          const weight = at(weights, b, h, i, j);
          if (weight === 0) continue;
          const value = row(v, V, b, j, Math.floor(h / (HQ / HKV)));
          for (let c = 0; c < V; c++) out[c]! += weight * value[c]!;
        }
      }
  return { output, finalKeys: k, finalValues: v };
}) satisfies Reference;
