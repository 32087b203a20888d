/** Scaled dot-product attention as its paper defines it (arXiv 1706.03762v7, equation 1), in float64 loops. */
import type { Reference, Values } from "../mechanism.ts";

/** What softmax attention is told beyond its inputs. */
export interface SoftmaxReferenceOptions {
  /** Query i sees keys up to i + Tk − T: the last query sees all. False unless given. */
  readonly causal?: boolean;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /** A causal query sees its own position and the window − 1 before it. */
  readonly window?: number;
}

/** The sizes that the inputs say. */
interface Axes {
  readonly B: number;
  readonly T: number;
  readonly Tk: number;
  readonly HQ: number;
  readonly HKV: number;
  readonly K: number;
  readonly V: number;
}

function axesOf(q: Values, k: Values, v: Values): Axes {
  const [B, T, HQ, K] = q.shape as [number, number, number, number];
  return { B, T, Tk: k.shape[1]!, HQ, HKV: k.shape[2]!, K, V: v.shape[3]! };
}

/** Whether query i may look at key j at all. */
function sees(axes: Axes, options: SoftmaxReferenceOptions, i: number, j: number): boolean {
  const position = i + axes.Tk - axes.T;
  if (options.causal && j > position) return false;
  return options.window === undefined || j > position - options.window;
}

/**
 * Weights `[B,HQ,T,Tk]`: exp(score) / Σ exp(score) over the keys that a query sees, rows of zeros where it sees none.
 *
 * @param inputs `q [B,T,HQ,K]`, `k [B,Tk,HKV,K]`, `v [B,Tk,HKV,V]`; optional `keyMask [B,Tk]` (0 hides a key) and
 * `bias [B,HQ,T,Tk]`, added to the scaled scores.
 */
export function softmaxWeights(
  inputs: Readonly<Record<string, Values>>,
  options: SoftmaxReferenceOptions = {},
): Values {
  const { q, k, v, keyMask, bias } = inputs as Record<string, Values> & { q: Values; k: Values; v: Values };
  const axes = axesOf(q, k, v);
  const { B, T, Tk, HQ, HKV, K } = axes;
  const scale = options.scale ?? K ** -0.5;
  const data = new Float64Array(B * HQ * T * Tk);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++)
      for (let i = 0; i < T; i++) {
        const row = data.subarray(((b * HQ + h) * T + i) * Tk, ((b * HQ + h) * T + i + 1) * Tk);
        row.fill(Number.NEGATIVE_INFINITY);
        for (let j = 0; j < Tk; j++) {
          if (!sees(axes, options, i, j) || keyMask?.data[b * Tk + j] === 0) continue;
          let score = 0;
          const queryAt = ((b * T + i) * HQ + h) * K;
          const keyAt = ((b * Tk + j) * HKV + Math.floor(h / (HQ / HKV))) * K;
          for (let c = 0; c < K; c++) score += q.data[queryAt + c]! * k.data[keyAt + c]!;
          row[j] = scale * score + (bias?.data[((b * HQ + h) * T + i) * Tk + j] ?? 0);
        }
        normalize(row);
      }
  return { data, shape: [B, HQ, T, Tk] };
}

/** Scores to weights, in place. */
function normalize(row: Float64Array): void {
  const largest = row.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  if (largest === Number.NEGATIVE_INFINITY) {
    row.fill(0);
    return;
  }
  let sum = 0;
  for (let j = 0; j < row.length; j++) {
    row[j] = Math.exp(row[j]! - largest);
    sum += row[j]!;
  }
  for (let j = 0; j < row.length; j++) row[j]! /= sum;
}

/** Outputs `[B,T,HQ,V]`: softmax(scale · q kᵀ + bias) v; query head h reads key head floor(h / (HQ/HKV)). */
export const reference = ((inputs, options: SoftmaxReferenceOptions = {}) => {
  const { q, k, v } = inputs as { q: Values; k: Values; v: Values };
  const { B, T, Tk, HQ, HKV, V } = axesOf(q, k, v);
  const weights = softmaxWeights(inputs, options);
  const data = new Float64Array(B * T * HQ * V);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < HQ; h++)
      for (let i = 0; i < T; i++)
        for (let j = 0; j < Tk; j++) {
          const weight = weights.data[((b * HQ + h) * T + i) * Tk + j]!;
          if (weight === 0) continue;
          const valueAt = ((b * Tk + j) * HKV + Math.floor(h / (HQ / HKV))) * V;
          const at = ((b * T + i) * HQ + h) * V;
          for (let c = 0; c < V; c++) data[at + c]! += weight * v.data[valueAt + c]!;
        }
  return { output: { data, shape: [B, T, HQ, V] } };
}) satisfies Reference;
