import { full } from "../../autograd/tensor.ts";
import { checkFloats } from "../elementwise.ts";
import { apply, type Op, type OpCase, type OpEntry, type Tensor } from "../op.ts";
import { scaled } from "../scale/index.ts";
import { type ReduceOptions, reducedAxes, reducedShape, stretched } from "./axes.ts";
import { sumKernels } from "./sum-kernels.ts";
import { sumOver } from "./sum-to.ts";

export type { ReduceOptions } from "./axes.ts";

function countOf(x: Tensor, reduced: readonly boolean[]): number {
  let count = 1;
  for (let axis = 0; axis < x.rank; axis++) if (reduced[axis]) count *= x.shape[axis]!;
  return count;
}

/** Sum and mean are one op: the mean is scaled by one over the number of terms. */
function makeOp(name: "sum" | "mean"): Op<{ x: Tensor }, ReduceOptions, { y: Tensor }, boolean[]> {
  const scaleOf = (x: Tensor, reduced: readonly boolean[]): number =>
    name === "sum" ? 1 : 1 / countOf(x, reduced);
  return {
    name,
    forward: ({ x }, { axes, keepDims = false }) => {
      checkFloats(name, "x", x);
      const reduced = reducedAxes(name, x.rank, axes);
      const shape = reducedShape(x.shape, reduced, keepDims);
      return { outputs: { y: sumOver(x, reduced, shape, scaleOf(x, reduced)) }, saved: reduced };
    },
    backward: ({ inputs: { x }, grads: { y }, saved: reduced }) => {
      if (y === undefined) return {};
      if (x.size === 0) return { x: full(x.device, x.shape, 0, { dtype: x.dtype }) };
      const scale = scaleOf(x, reduced);
      return { x: stretched(scale === 1 ? y : scaled(y, scale), x.shape, reduced) };
    },
  };
}

const sumOp = /* @__PURE__ */ makeOp("sum");
const meanOp = /* @__PURE__ */ makeOp("mean");

/**
 * The sum over one axis, several, or all of them.
 *
 * `x [...]` floats → the shape without the reduced axes, or with length 1 there (`keepDims`). Summed in blocks whose
 * borders depend on the sizes alone, so threads change no bit. A sum of nothing is 0. Cost: the bytes of x once read;
 * the gradient is a view and costs nothing.
 *
 * @throws ShapeError for an axis that is not there or named twice, DtypeError for whole numbers.
 * @example
 * const rows = sum(x, { axes: -1 });
 */
export function sum(x: Tensor, options: ReduceOptions = {}): Tensor {
  return apply(sumOp, { x }, options).y;
}

/**
 * The mean over one axis, several, or all of them: as `sum`, times one over the number of terms. A mean of nothing is
 * NaN.
 *
 * @throws ShapeError for an axis that is not there or named twice, DtypeError for whole numbers.
 * @example
 * const loss = mean(losses);
 */
export function mean(x: Tensor, options: ReduceOptions = {}): Tensor {
  return apply(meanOp, { x }, options).y;
}

function reduceCase(name: string, shape: number[], options: ReduceOptions): OpCase<ReduceOptions> {
  const reduced = shape.length === 0 ? [] : reducedAxes(name, shape.length, options.axes);
  let terms = 1;
  for (const [axis, length] of shape.entries()) if (reduced[axis]) terms *= Math.max(length, 1);
  return { name, inputs: { x: { shape } }, options, terms, gradientTerms: { x: 1 } };
}

const cases: readonly OpCase<ReduceOptions>[] = [
  ...[1, 3, 17, 33, 65, 127].flatMap((n) => [
    reduceCase(`rows n=${n}`, [5, n], { axes: -1 }),
    reduceCase(`columns n=${n}`, [5, n], { axes: 0, keepDims: true }),
  ]),
  reduceCase("all", [7, 3, 5], {}),
  reduceCase("middle", [3, 17, 5], { axes: 1 }),
  reduceCase("outer and inner", [4, 3, 33], { axes: [0, -1] }),
  reduceCase("alternating", [2, 3, 4, 5, 6], { axes: [0, 2, 4], keepDims: true }),
  reduceCase("long row", [2, 20011], { axes: 1 }),
  reduceCase("tall", [1111, 37], { axes: 0 }),
  reduceCase("wide", [2, 3, 2050], { axes: 1 }),
  reduceCase("scalar", [], {}),
  reduceCase("no axes", [3, 4], { axes: [] }),
  reduceCase("empty left", [0, 3], { axes: 1 }),
  { ...reduceCase("not there", [3, 4], {}), options: { axes: 2 }, fails: "E_SHAPE" },
  { ...reduceCase("twice", [3, 4], {}), options: { axes: [1, -1] }, fails: "E_SHAPE" },
  {
    name: "whole numbers",
    inputs: { x: { shape: [3], sample: "integers", low: 0, high: 9 } },
    options: {},
    terms: 1,
    fails: "E_DTYPE",
  },
];

const size = 2 ** 20;

/** How suites see `sum`. */
export const sumEntry: OpEntry<ReduceOptions> = {
  kind: "op",
  name: "sum",
  kernels: sumKernels,
  run: ({ x }, options) => ({ y: sum(x!, options) }),
  cases: [...cases, reduceCase("empty", [3, 0], { axes: 1 })],
  bench: {
    inputs: { x: { shape: [size / 1024, 1024] } },
    options: { axes: 0 },
    bytes: { forward: 4 * size, backward: 0 },
  },
};

/** How suites see `mean`. */
export const meanEntry: OpEntry<ReduceOptions> = {
  kind: "op",
  name: "mean",
  kernels: sumKernels,
  run: ({ x }, options) => ({ y: mean(x!, options) }),
  cases,
  bench: {
    inputs: { x: { shape: [size / 1024, 1024] } },
    options: { axes: -1 },
    bytes: { forward: 4 * size, backward: 0 },
  },
};
