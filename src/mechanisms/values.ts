/** Arrays with names for their axes: all that a float64 reference needs. */
import type { Values } from "./mechanism.ts";

/** Zeros of a shape. */
export function zeroValues(shape: readonly number[]): Values {
  return { data: new Float64Array(shape.reduce((product, length) => product * length, 1)), shape };
}

/** Row-major position of an index. */
export function position(values: Values, ...index: readonly number[]): number {
  let at = 0;
  for (let axis = 0; axis < values.shape.length; axis++) at = at * values.shape[axis]! + index[axis]!;
  return at;
}

/** The element at an index; an absent array reads as zeros. */
export function at(values: Values | undefined, ...index: readonly number[]): number {
  return values === undefined ? 0 : values.data[position(values, ...index)]!;
}

/** The last axis at an index of the others, as a view; an absent array reads as zeros of the given length. */
export function row(values: Values | undefined, length: number, ...index: readonly number[]): Float64Array {
  if (values === undefined) return new Float64Array(length);
  const from = position(values, ...index, 0);
  return values.data.subarray(from, from + length);
}

/** Σ a_i b_i. */
export function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** A gate `[B,T,HV,K]` made equal along its channels, and the same as `[B,T,HV]`: the first channel's values. */
export function equalChannels(g: Values): { scalar: Values; channels: Values } {
  const K = g.shape[3]!;
  const outer = g.shape.slice(0, 3);
  const data = Float64Array.from({ length: g.data.length / Math.max(1, K) }, (_, i) => g.data[i * K]!);
  return {
    scalar: { shape: outer, data },
    channels: { shape: g.shape, data: g.data.map((_, i) => data[Math.floor(i / K)]!) },
  };
}

/** Keys `[B,T,H,K]` that are orthonormal over time for T ≤ K: token t points along axis (t + h) mod K. */
export function axisKeys(shape: readonly number[]): Values {
  const [B, T, H, K] = shape as [number, number, number, number];
  const keys = zeroValues(shape);
  for (let b = 0; b < B; b++)
    for (let t = 0; t < T; t++)
      for (let h = 0; h < H; h++) keys.data[position(keys, b, t, h, (t + h) % K)] = 1;
  return keys;
}

/** A gate `[B,T,HV]` made equal for all tokens of a head, and the same as `[HV]`: the first token's values. */
export function equalTokens(g: Values): { heads: Values; tokens: Values } {
  const HV = g.shape[2]!;
  const data = Float64Array.from({ length: HV }, (_, j) => g.data[j] ?? 0);
  return {
    heads: { shape: [HV], data },
    tokens: { shape: g.shape, data: g.data.map((_, i) => data[i % HV]!) },
  };
}

/** The rows of the last axis over √(Σ x² + 1e-6). */
export function unitRows(x: Values): Values {
  const width = x.shape.at(-1)!;
  const lengths = Float64Array.from({ length: x.data.length / Math.max(1, width) }, (_, i) => {
    const line = x.data.subarray(i * width, (i + 1) * width);
    return Math.sqrt(dot(line, line) + 1e-6);
  });
  return { shape: x.shape, data: x.data.map((value, i) => value / lengths[Math.floor(i / width)]!) };
}
