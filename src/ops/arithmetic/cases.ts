import { broadcastShapes, type Shape, sizeOf } from "../../tensor/shape.ts";
import type { InputSpec, OpBench, OpCase } from "../op.ts";

const pairs: readonly (readonly [name: string, a: Shape, b: Shape])[] = [
  ...[1, 3, 17, 33, 65, 127].map((n) => [`n=${n}`, [n], [n]] as const),
  ["several units", [3, 2111], [3, 2111]],
  ["several units with a row", [3, 2111], [2111]],
  ["a scalar", [5, 33], []],
  ["scalar first", [], [5, 33]],
  ["a row", [2, 7, 17], [17]],
  ["row first", [17], [2, 7, 17]],
  ["a column", [2, 7, 17], [2, 7, 1]],
  ["both stretched", [7, 1], [1, 33]],
  ["in the middle", [2, 1, 5], [2, 3, 5]],
  ["alternating", [2, 1, 3, 1, 2, 1], [1, 3, 1, 2, 1, 3]],
  ["more axes", [3, 1, 5], [4, 2, 1, 7, 1]],
  ["empty", [3, 0], [1]],
  ["empty and stretched", [0, 2, 1], [0, 1, 1]],
];

/** A divisor stays away from zero. */
function divisor(name: string, shape: Shape): InputSpec {
  return name === "divide" ? { shape, sample: "uniform", low: 0.5, high: 3 } : { shape };
}

/** Shapes that broadcast in every way there is, and one that does not. */
export function arithmeticCases(name: string): OpCase<undefined>[] {
  const cases = pairs.map(([title, a, b]): OpCase<undefined> => {
    const size = sizeOf(broadcastShapes(name, a, b));
    const termsOf = (shape: Shape): number => Math.max(1, size / Math.max(1, sizeOf(shape)));
    const gradientTerms = { a: termsOf(a), b: termsOf(b) };
    const inputs = { a: { shape: a }, b: divisor(name, b) };
    return { name: title, inputs, options: undefined, terms: 1, gradientTerms };
  });
  return [
    ...cases,
    {
      name: "disagree",
      inputs: { a: { shape: [3, 4] }, b: { shape: [3] } },
      options: undefined,
      terms: 1,
      fails: "E_SHAPE",
    },
    {
      name: "whole numbers",
      inputs: { a: { shape: [3] }, b: { shape: [3], sample: "integers", low: 1, high: 9 } },
      options: undefined,
      terms: 1,
      fails: "E_DTYPE",
    },
  ];
}

/** A row vector over many rows, as a bias or a weight is. */
export function arithmeticBench(name: string): OpBench<undefined> {
  const size = 2 ** 20;
  return {
    inputs: { a: { shape: [size / 1024, 1024] }, b: divisor(name, [1024]) },
    options: undefined,
    bytes: {
      forward: 8 * size,
      backward: name === "add" || name === "subtract" ? 4 * size : (name === "divide" ? 24 : 16) * size,
    },
  };
}
