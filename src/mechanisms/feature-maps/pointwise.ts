/** Maps of every channel alone: what the kernels of the recurrence apply to rows as they read them. */
import type { TypedArray } from "../../tensor/dtype.ts";

/** φ(x) of one channel, and its slope from φ alone: nothing but q and k need be kept for the gradient. */
export interface Pointwise {
  /** The number by which kernels know it. */
  readonly code: number;
  readonly value: (x: number) => number;
  readonly slope: (y: number) => number;
}

/** x + 1 above 0, exp(x) below. */
export const eluPlusOne: Pointwise = {
  code: 1,
  value: (x) => (x > 0 ? x + 1 : Math.exp(x)),
  slope: (y) => Math.min(y, 1),
};

/** max(x, 0). */
export const relu: Pointwise = {
  code: 2,
  value: (x) => Math.max(x, 0),
  slope: (y) => (y > 0 ? 1 : 0),
};

/** exp(x). */
export const exp: Pointwise = { code: 3, value: Math.exp, slope: (y) => y };

/** log(1 + exp(x)). */
export const softplus: Pointwise = {
  code: 4,
  value: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  slope: (y) => -Math.expm1(-y),
};

const byCode: readonly (Pointwise | undefined)[] = [undefined, eluPlusOne, relu, exp, softplus];

/** The map with a code; undefined for 0, which leaves rows as they are. */
export function pointwiseOf(code: number): Pointwise | undefined {
  return byCode[code];
}

/** φ of every element; the array itself where there is no map. */
export function mapValues(map: Pointwise | undefined, x: TypedArray): TypedArray {
  return map === undefined ? x : Float64Array.from(x, map.value);
}
