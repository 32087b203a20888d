import type { Tensor } from "../../autograd/tensor.ts";
import type { Device, Slice } from "../../device/device.ts";
import { packed } from "../contiguous/index.ts";
import { stridedKernel } from "./kernels.ts";
import { planProduct } from "./plan.ts";

/** A stack of matrices by strides in elements; a batch stride of 0 repeats one matrix. */
export interface Matrices {
  readonly slice: Slice;
  /** Stride of each batch axis. */
  readonly batch: readonly number[];
  readonly row: number;
  readonly col: number;
}

/**
 * C[…, i, j] = Σ_p A[…, i, p]·B[…, p, j] (+ bias[j]).
 *
 * B has contiguous rows or columns, C contiguous rows. Batch axes that C repeats (stride 0) are summed over.
 */
export interface Product {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Lengths of the batch axes. */
  readonly batch: readonly number[];
  readonly a: Matrices;
  readonly b: Matrices;
  readonly c: Matrices;
  readonly bias?: Slice | undefined;
}

/** The tensor itself where its last two axes have contiguous rows or columns, else a copy that has. */
export function withUnitStride(x: Tensor): Tensor {
  const [row, col] = x.layout.strides.slice(-2);
  const [rows, cols] = x.shape.slice(-2);
  return row === 1 || col === 1 || rows === 1 || cols === 1 ? x : packed(x);
}

/** The last two axes of a tensor, transposed or not, as a stack that is repeated where `batch` is wider than it. */
export function matricesOf(x: Tensor, batch: readonly number[], transpose: boolean): Matrices {
  const { strides } = x.layout;
  const first = x.rank - 2 - batch.length;
  const stackStrides = batch.map((length, i) => {
    const axis = first + i;
    return axis < 0 || x.shape[axis] !== length ? 0 : strides[axis]!;
  });
  // An axis of one element has whatever stride makes the other one simple.
  const row = x.shape.at(-2) === 1 && strides.at(-1) !== 1 ? 1 : strides.at(-2)!;
  const col = x.shape.at(-1) === 1 ? 1 : strides.at(-1)!;
  return { slice: x.layout, batch: stackStrides, row: transpose ? col : row, col: transpose ? row : col };
}

interface Axis {
  readonly length: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

interface Side {
  readonly slice: Slice;
  readonly row: number;
  readonly col: number;
}

/** A product on its way: axes that C keeps, axes summed over, and what is left of the matrices. */
interface Core {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly a: Side;
  readonly b: Side;
  readonly c: { readonly slice: Slice; readonly row: number };
  readonly kept: readonly Axis[];
  readonly summed: readonly Axis[];
}

/** Computes a product, in as few dispatches as its strides allow: one for all that models do. */
export function product(device: Device, job: Product): void {
  const axes = job.batch
    .map((length, i) => ({ length, a: job.a.batch[i]!, b: job.b.batch[i]!, c: job.c.batch[i]! }))
    .filter(({ length }) => length !== 1);
  const kept = axes.filter(({ c }) => c !== 0);
  const summed = axes.filter(({ c }) => c === 0);
  let core: Core = foldSteps(foldRows({ ...job, kept, summed }));
  if (core.n === 1 && core.m > 1 && job.bias === undefined) core = asRow(core);
  const joined = join(core.kept);
  const inside = joined.splice(-2);
  each([...joined, ...core.summed], (at, isFirst) => {
    dispatch(device, core, inside, at, isFirst ? job.bias : undefined, !isFirst);
  });
}

/** Batch axes that B repeats are rows of A and C where the strides run on: one tall product instead of many. */
function foldRows(core: Core): Core {
  const { m, a, c, kept } = core;
  const axis = kept.find((each) => {
    return each.b === 0 && (m === 1 || (each.a === m * a.row && each.c === m * c.row));
  });
  if (axis === undefined) return core;
  return foldRows({
    ...{ ...core, m: m * axis.length, kept: kept.filter((each) => each !== axis) },
    ...(m === 1 ? { a: { ...a, row: axis.a }, c: { ...c, row: axis.c } } : {}),
  });
}

/** Summed axes are further steps of the inner axis where the strides run on. */
function foldSteps(core: Core): Core {
  const { k, a, b, summed } = core;
  const axis = summed.find((each) => {
    return k === 1 || each.length === 0 || (each.a === k * a.col && each.b === k * b.row);
  });
  if (axis === undefined) return core;
  return foldSteps({
    ...{ ...core, k: k * axis.length, summed: summed.filter((each) => each !== axis) },
    ...(k === 1 ? { a: { ...a, col: axis.a }, b: { ...b, row: axis.b } } : {}),
  });
}

/** A single column computed as a row, which has the columns that vector lanes need; the same chains. */
function asRow(core: Core): Core {
  const { m, a, b, c } = core;
  if (c.row !== 1 || (a.row !== 1 && a.col !== 1)) return core;
  const exchange = (axes: readonly Axis[]): Axis[] => axes.map((axis) => ({ ...axis, a: axis.b, b: axis.a }));
  return {
    ...{
      m: 1,
      n: m,
      k: core.k,
      a: { slice: b.slice, row: 0, col: b.row },
      b: { slice: a.slice, row: a.col, col: a.row },
    },
    ...{ c: { slice: c.slice, row: m }, kept: exchange(core.kept), summed: exchange(core.summed) },
  };
}

/** Neighbouring axes whose strides run on in all three operands, as one. */
function join(axes: readonly Axis[]): Axis[] {
  const joined: Axis[] = [];
  for (const axis of axes) {
    const outer = joined.at(-1);
    const runsOn = (name: "a" | "b" | "c"): boolean => outer![name] === axis.length * axis[name];
    if (outer !== undefined && runsOn("a") && runsOn("b") && runsOn("c")) {
      joined[joined.length - 1] = { ...axis, length: outer.length * axis.length };
    } else joined.push(axis);
  }
  return joined;
}

/** Calls `visit` at every index of the axes, the last running fastest; `isFirst` at the start of every sum. */
function each(axes: readonly Axis[], visit: (at: Omit<Axis, "length">, isFirst: boolean) => void): void {
  const walk = (depth: number, at: Omit<Axis, "length">, isFirst: boolean): void => {
    const axis = axes[depth];
    if (axis === undefined) {
      visit(at, isFirst);
      return;
    }
    for (let i = 0; i < axis.length; i++) {
      const next = { a: at.a + i * axis.a, b: at.b + i * axis.b, c: at.c + i * axis.c };
      walk(depth + 1, next, isFirst && (axis.c !== 0 || i === 0));
    }
  };
  walk(0, { a: 0, b: 0, c: 0 }, true);
}

function dispatch(
  device: Device,
  core: Core,
  inside: readonly Axis[],
  at: Omit<Axis, "length">,
  bias: Slice | undefined,
  accumulate: boolean,
): void {
  const { m, n, k, a, b, c } = core;
  const none: Axis = { length: 1, a: 0, b: 0, c: 0 };
  const inner = inside.at(-1) ?? none;
  const outer = inside.at(-2) ?? none;
  const batch = outer.length * inner.length;
  const plan = planProduct({ m, n, k, batch, a, b });
  const move = ({ storage, offset }: Slice, by: number): Slice => ({ storage, offset: offset + by });
  device.run({
    kernel: stridedKernel,
    buffers: [move(a.slice, at.a), move(b.slice, at.b), move(c.slice, at.c), bias ?? c.slice],
    ints: [
      ...[m, n, k, batch, inner.length],
      ...[outer.a, inner.a, a.row, a.col],
      ...[outer.b, inner.b, b.row, b.col],
      ...[outer.c, inner.c, c.row, accumulate ? 1 : 0, bias ? 1 : 0],
      ...[plan.rows, plan.cols, plan.steps, plan.packA ? 1 : 0, plan.packB],
    ],
    floats: [],
    units: plan.units,
    work: m * n * k * batch,
    scratchBytes: plan.scratchBytes,
  });
}
