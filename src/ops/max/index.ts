import { empty, Tensor } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { ShapeError } from "../../errors.ts";
import { formatShape, sizeOf, stridesOf } from "../../tensor/shape.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats } from "../elementwise.ts";
import { apply, type Op, type OpCase, type OpEntry } from "../op.ts";
import { axesBack, type ReduceOptions, reducedAxes, reducedLast, reducedShape } from "../reduce/axes.ts";
import { backwardHost, columnsHost, rowsHost } from "./host.ts";

const rowsKernel: Kernel = { key: "max.rows.forward", host: rowsHost };
const columnsKernel: Kernel = { key: "max.columns.forward", host: columnsHost };
const backwardKernel: Kernel = { key: "max.place.backward", host: backwardHost };

/** The reduced axes as one: [outer, n, inner], inner 1 unless they lie together in front of others. */
interface Saved {
  readonly reduced: readonly boolean[];
  readonly places: Tensor;
  readonly outer: number;
  readonly n: number;
  readonly inner: number;
  /** True where axes were moved so that the reduced ones come last. */
  readonly moved: boolean;
}

function plan(x: Tensor, reduced: readonly boolean[]): Omit<Saved, "places"> {
  const first = reduced.indexOf(true);
  const last = reduced.lastIndexOf(true);
  const moved = first >= 0 && reduced.slice(first, last).includes(false);
  const product = (keep: (axis: number) => boolean): number =>
    sizeOf(x.shape.filter((_, axis) => keep(axis)));
  const n = product((axis) => reduced[axis]!);
  if (moved || first < 0) return { reduced, n, outer: x.size / n, inner: 1, moved };
  return { reduced, n, outer: product((axis) => axis < first), inner: product((axis) => axis > last), moved };
}

const op: Op<{ x: Tensor }, ReduceOptions, { y: Tensor }, Saved> = {
  name: "max",
  forward: ({ x }, { axes, keepDims = false }) => {
    checkFloats("max", "x", x);
    const { device } = x;
    const reduced = reducedAxes("max", x.rank, axes);
    const shape = reducedShape(x.shape, reduced, keepDims);
    if (x.size === 0 && sizeOf(shape) > 0) {
      throw new ShapeError(
        `[max] x has nothing to choose from: expected reduced axes of length >= 1, got ${formatShape(x.shape)}`,
      );
    }
    const y = empty(device, shape, { dtype: x.dtype });
    const places = empty(device, shape, { dtype: "int32" });
    const job = x.size === 0 ? { reduced, n: 0, outer: 0, inner: 0, moved: false } : plan(x, reduced);
    const { n, outer, inner } = job;
    const tiles = (inner + 255) >>> 8;
    if (y.size > 0) {
      device.run({
        kernel: inner === 1 ? rowsKernel : columnsKernel,
        buffers: [packed(job.moved ? reducedLast(x, reduced) : x).layout, y.layout, places.layout],
        ints: inner === 1 ? [n, outer] : [n, inner, tiles, outer],
        floats: [],
        units: inner === 1 ? outer : outer * tiles,
        work: x.size,
        scratchBytes: 0,
      });
    }
    return { outputs: { y }, saved: { ...job, places } };
  },
  backward: ({ inputs: { x }, grads: { y }, saved }) => {
    if (y === undefined) return {};
    const { places, n, outer, inner, reduced, moved } = saved;
    const dx = empty(x.device, x.shape, { dtype: x.dtype });
    if (x.size === 0) return { x: dx };
    x.device.run({
      kernel: backwardKernel,
      buffers: [places.layout, packed(y).layout, dx.layout],
      ints: [n, inner, outer],
      floats: [],
      units: outer,
      work: x.size,
      scratchBytes: 0,
    });
    const dense = new Tensor({ ...dx.layout, strides: stridesOf(x.shape) }, x.shape);
    return { x: moved ? axesBack(dense, x.shape, reduced) : dense };
  },
};

/**
 * The largest element over one axis, several, or all of them.
 *
 * `x [...]` floats → the shape without the reduced axes, or with length 1 there (`keepDims`). NaN where there is one.
 * The gradient goes to the first of equals. Cost: the bytes of x once read, and once written by the gradient.
 *
 * @throws ShapeError for an axis that is not there, named twice, or reduced with length 0; DtypeError for whole numbers.
 * @example
 * const peaks = max(x, { axes: -1 });
 */
export function max(x: Tensor, options: ReduceOptions = {}): Tensor {
  return apply(op, { x }, options).y;
}

function maxCase(name: string, shape: number[], options: ReduceOptions): OpCase<ReduceOptions> {
  return { name, inputs: { x: { shape } }, options, terms: 1 };
}

const size = 2 ** 20;

/** How suites see `max`. */
export const maxEntry: OpEntry<ReduceOptions> = {
  kind: "op",
  name: "max",
  kernels: [rowsKernel, columnsKernel, backwardKernel],
  run: ({ x }, options) => ({ y: max(x!, options) }),
  cases: [
    ...[1, 3, 17, 33, 65, 127].flatMap((n) => [
      maxCase(`rows n=${n}`, [5, n], { axes: -1 }),
      maxCase(`columns n=${n}`, [5, n], { axes: 0, keepDims: true }),
    ]),
    maxCase("all", [7, 3, 5], {}),
    maxCase("middle", [3, 17, 5], { axes: 1 }),
    maxCase("outer and inner", [4, 3, 33], { axes: [0, -1] }),
    maxCase("alternating", [2, 3, 4, 5, 6], { axes: [0, 2, 4], keepDims: true }),
    maxCase("scalar", [], {}),
    maxCase("no axes", [3, 4], { axes: [] }),
    maxCase("empty left", [0, 3], { axes: 1 }),
    { ...maxCase("of nothing", [3, 0], { axes: 1 }), fails: "E_SHAPE" },
    { ...maxCase("not there", [3, 4], { axes: 2 }), fails: "E_SHAPE" },
  ],
  bench: {
    inputs: { x: { shape: [size / 1024, 1024] } },
    options: { axes: -1 },
    bytes: { forward: 4 * size, backward: 4 * size },
  },
};
