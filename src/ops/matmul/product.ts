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
  const { shape, rank } = x;
  const { strides } = x.layout;
  for (let axis = rank - 2; axis < rank; axis++) if (strides[axis] === 1 || shape[axis] === 1) return x;
  return packed(x);
}

/** The last two axes of a tensor, transposed or not, as a stack that is repeated where `batch` is wider than it. */
export function matricesOf(x: Tensor, batch: readonly number[], transpose: boolean): Matrices {
  const { shape, rank } = x;
  const { strides } = x.layout;
  const first = rank - 2 - batch.length;
  const stack = new Array<number>(batch.length);
  for (let i = 0; i < batch.length; i++) {
    const axis = first + i;
    stack[i] = axis < 0 || shape[axis] !== batch[i] ? 0 : strides[axis]!;
  }
  // An axis of one element has whatever stride makes the other one simple.
  const row = shape[rank - 2] === 1 && strides[rank - 1] !== 1 ? 1 : strides[rank - 2]!;
  const col = shape[rank - 1] === 1 ? 1 : strides[rank - 1]!;
  return { slice: x.layout, batch: stack, row: transpose ? col : row, col: transpose ? row : col };
}

interface Axis {
  length: number;
  a: number;
  b: number;
  c: number;
}

/** A product on its way: fresh for each call and changed in place, as small products are all overhead. */
interface Core {
  m: number;
  n: number;
  k: number;
  a: Slice;
  aRow: number;
  aCol: number;
  b: Slice;
  bRow: number;
  bCol: number;
  readonly c: Slice;
  cRow: number;
  /** Batch axes that C keeps, and those summed over. */
  readonly kept: Axis[];
  readonly summed: Axis[];
}

/** Computes a product, in as few dispatches as its strides allow: one for all that models do. */
export function product(device: Device, job: Product): void {
  const { a, b, c, bias } = job;
  const core: Core = {
    m: job.m,
    n: job.n,
    k: job.k,
    a: a.slice,
    aRow: a.row,
    aCol: a.col,
    b: b.slice,
    bRow: b.row,
    bCol: b.col,
    c: c.slice,
    cRow: c.row,
    kept: [],
    summed: [],
  };
  for (let i = 0; i < job.batch.length; i++) {
    const axis = { length: job.batch[i]!, a: a.batch[i]!, b: b.batch[i]!, c: c.batch[i]! };
    if (axis.length !== 1) (axis.c === 0 ? core.summed : core.kept).push(axis);
  }
  if (core.m === 0 || core.n === 0 || core.kept.some(({ length }) => length === 0)) return;
  if (core.kept.length > 0) foldRows(core);
  if (core.summed.length > 0) foldSteps(core);
  if (core.k === 0) forgetOperands(core);
  if (core.n === 1 && core.m > 1 && bias === undefined) turnColumn(core);
  if (core.kept.length > 1) join(core.kept);
  const inner = core.kept.pop() ?? single;
  const outer = core.kept.pop() ?? single;
  if (core.kept.length + core.summed.length === 0) {
    dispatch(device, core, [outer, inner], origin, bias, false);
    return;
  }
  each([...core.kept, ...core.summed], (at, isFirst) => {
    dispatch(device, core, [outer, inner], at, isFirst ? bias : undefined, !isFirst);
  });
}

const single: Readonly<Axis> = { length: 1, a: 0, b: 0, c: 0 };
const origin: Offsets = { a: 0, b: 0, c: 0 };

interface Offsets {
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** Batch axes that B repeats are rows of A and C where the strides run on: one tall product instead of many. */
function foldRows(core: Core): void {
  const { kept } = core;
  for (let i = kept.length - 1; i >= 0; i--) {
    const axis = kept[i]!;
    const isAlone = core.m === 1;
    if (axis.b !== 0) continue;
    if (!isAlone && (axis.a !== core.m * core.aRow || axis.c !== core.m * core.cRow)) continue;
    if (isAlone) {
      core.aRow = axis.a;
      core.cRow = axis.c;
    }
    core.m *= axis.length;
    kept.splice(i, 1);
    i = kept.length;
  }
}

/** Summed axes are further steps of the inner axis where the strides run on. */
function foldSteps(core: Core): void {
  const { summed } = core;
  for (let i = summed.length - 1; i >= 0; i--) {
    const axis = summed[i]!;
    const isAlone = core.k === 1 || axis.length === 0;
    if (!isAlone && (axis.a !== core.k * core.aCol || axis.b !== core.k * core.bRow)) continue;
    // Kernels read B along its rows or along its columns: one of the two strides stays 1.
    if (core.k === 1 && axis.length > 0 && core.bCol !== 1 && axis.b !== 1) continue;
    if (isAlone) {
      core.aCol = axis.a;
      core.bRow = axis.b;
    }
    core.k *= axis.length;
    summed.splice(i, 1);
    i = summed.length;
  }
}

/** Without steps nothing of A and B is read, and they may have no elements for a stride to lead to. */
function forgetOperands(core: Core): void {
  core.summed.length = 0;
  for (const axis of core.kept) {
    axis.a = 0;
    axis.b = 0;
  }
}

/** A single column computed as a row, which has the columns that vector lanes need; the same chains. */
function turnColumn(core: Core): void {
  if (core.cRow !== 1 || (core.aRow !== 1 && core.aCol !== 1)) return;
  const { m, a, aRow, aCol } = core;
  core.a = core.b;
  core.aRow = 0;
  core.aCol = core.bRow;
  core.b = a;
  core.bRow = aCol;
  core.bCol = aRow;
  core.n = m;
  core.m = 1;
  core.cRow = m;
  for (const axis of [...core.kept, ...core.summed]) [axis.a, axis.b] = [axis.b, axis.a];
}

/** Makes neighbouring axes whose strides run on in all three operands one. */
function join(axes: Axis[]): void {
  for (let i = axes.length - 1; i > 0; i--) {
    const outer = axes[i - 1]!;
    const axis = axes[i]!;
    const { length } = axis;
    if (outer.a !== length * axis.a || outer.b !== length * axis.b || outer.c !== length * axis.c) continue;
    axis.length *= outer.length;
    axes.splice(i - 1, 1);
  }
}

/** Calls `visit` at every index of the axes, the last running fastest; `isFirst` at the start of every sum. */
function each(axes: readonly Axis[], visit: (at: Offsets, isFirst: boolean) => void): void {
  const walk = (depth: number, at: Offsets, isFirst: boolean): void => {
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
  walk(0, origin, true);
}

function moved({ storage, offset }: Slice, by: number): Slice {
  return { storage, offset: offset + by };
}

function dispatch(
  device: Device,
  core: Core,
  [outer, inner]: readonly [Readonly<Axis>, Readonly<Axis>],
  at: Offsets,
  bias: Slice | undefined,
  accumulate: boolean,
): void {
  const { m, n, k, aRow, aCol, bRow, bCol, cRow } = core;
  const batch = outer.length * inner.length;
  const plan = planProduct({ m, n, k, batch, aRow, aCol, bRow, bCol });
  // biome-ignore format: the words of the kernel, group by group
  const ints = [
    m, n, k, batch, inner.length,
    outer.a, inner.a, aRow, aCol,
    outer.b, inner.b, bRow, bCol,
    outer.c, inner.c, cRow,
    accumulate ? 1 : 0, bias === undefined ? 0 : 1,
    plan.rows, plan.cols, plan.steps, plan.packA ? 1 : 0, plan.packB,
  ];
  device.run({
    kernel: stridedKernel,
    buffers: [moved(core.a, at.a), moved(core.b, at.b), moved(core.c, at.c), bias ?? core.c],
    ints,
    floats: [],
    units: plan.units,
    work: m * n * k * batch,
    scratchBytes: plan.scratchBytes,
  });
}
