import type { Random } from "../tensor/random.ts";

/** The first values of a parameter: row-major, drawn from `random` alone. */
export type Init = (shape: readonly number[], random: Random) => Float64Array;

const sizeOf = (shape: readonly number[]): number => shape.reduce((product, length) => product * length, 1);

/** The same value everywhere. */
export function constant(value: number): Init {
  return (shape) => new Float64Array(sizeOf(shape)).fill(value);
}

/** Zeros. */
export const zerosInit: Init = constant(0);

/** Ones. */
export const onesInit: Init = constant(1);

/** N(0, deviation²). */
export function normalInit(deviation: number): Init {
  return (shape, random) => random.normal(new Float64Array(sizeOf(shape)), 0, deviation);
}

/** Uniform on [low, high). */
export function uniformInit(low: number, high: number): Init {
  return (shape, random) => random.uniform(new Float64Array(sizeOf(shape)), low, high);
}

/** Uniform on ±gain/√fanIn, where fanIn is the product of all axes but the first: weights are `[out, in]`. */
export function fanInInit(gain = 1): Init {
  return (shape, random) => {
    const bound = gain / Math.sqrt(Math.max(1, sizeOf(shape.slice(1))));
    return random.uniform(new Float64Array(sizeOf(shape)), -bound, bound);
  };
}

/** Values computed one by one from their row-major position, for the constants that papers give as formulas. */
export function formulaInit(value: (i: number, random: Random) => number): Init {
  return (shape, random) => each(shape, (i) => value(i, random));
}

function each(shape: readonly number[], value: (i: number) => number): Float64Array {
  const values = new Float64Array(sizeOf(shape));
  for (let i = 0; i < values.length; i++) values[i] = value(i);
  return values;
}
