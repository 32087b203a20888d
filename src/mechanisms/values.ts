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
