import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { normalizeAxis, sizeOf } from "../../tensor/shape.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats } from "../elementwise.ts";
import { apply, type Op, type OpCase, type OpEntry, type Tensor } from "../op.ts";

function scan(
  buffers: readonly TypedArray[],
  outer: number,
  n: number,
  inner: number,
  reverse: boolean,
): void {
  const [x, y] = buffers as [TypedArray, TypedArray];
  for (let o = 0; o < outer; o++) {
    for (let c = 0; c < inner; c++) {
      let sum = 0;
      for (let i = 0; i < n; i++) {
        const at = (o * n + (reverse ? n - 1 - i : i)) * inner + c;
        sum += x[at]!;
        y[at] = sum;
      }
    }
  }
}

/** ints: n, rows, reverse. */
const rowsHost: HostKernel = (buffers, ints) => scan(buffers, ints[1]!, ints[0]!, 1, ints[2] === 1);

/** ints: n, inner, tiles, reverse, outer. */
const columnsHost: HostKernel = (buffers, ints) => scan(buffers, ints[4]!, ints[0]!, ints[1]!, ints[3] === 1);

const rowsKernel: Kernel = { key: "cumsum.rows.forward", host: rowsHost };
const columnsKernel: Kernel = { key: "cumsum.columns.forward", host: columnsHost };

/** Options of `cumsum`. */
export interface CumsumOptions {
  /** Counted from the end where negative; the last unless given. */
  readonly axis?: number;
  /** From the last element to the first. */
  readonly reverse?: boolean;
}

function compute(x: Tensor, axis: number, reverse: boolean): Tensor {
  const { device, dtype, shape } = x;
  const y = empty(device, shape, { dtype });
  if (y.size === 0) return y;
  const n = shape[axis]!;
  const outer = sizeOf(shape.slice(0, axis));
  const inner = sizeOf(shape.slice(axis + 1));
  const tiles = (inner + 255) >>> 8;
  const direction = reverse ? 1 : 0;
  const isRows = inner === 1;
  device.run({
    kernel: isRows ? rowsKernel : columnsKernel,
    buffers: [packed(x).layout, y.layout],
    ints: isRows ? [n, outer, direction] : [n, inner, tiles, direction, outer],
    floats: [],
    units: isRows ? (outer + 3) >>> 2 : outer * tiles,
    work: x.size * 2,
    scratchBytes: 0,
  });
  return y;
}

const op: Op<{ x: Tensor }, CumsumOptions, { y: Tensor }, number> = {
  name: "cumsum",
  forward: ({ x }, { axis = -1, reverse = false }) => {
    checkFloats("cumsum", "x", x);
    const at = normalizeAxis(axis, x.rank, "cumsum");
    return { outputs: { y: compute(x, at, reverse) }, saved: at };
  },
  backward: ({ options, grads: { y }, saved: axis }) => ({ x: y && compute(y, axis, !options.reverse) }),
};

/**
 * Running sums along an axis: y_t = Σ_{s ≤ t} x_s, or with `reverse` Σ_{s ≥ t} x_s.
 *
 * `x [...]` floats → the same shape. Each element is the one before plus one term, so the error grows as eps·√n, and
 * a prefix never depends on what follows it. The gradient is the running sum the other way. Cost: the bytes of x once
 * read and once written; one row alone runs at the latency of an addition.
 *
 * @throws ShapeError for an axis that is not there, DtypeError for whole numbers.
 * @example
 * const decay = cumsum(g, { axis: 1 }); // [B, T, HV]
 */
export function cumsum(x: Tensor, options: CumsumOptions = {}): Tensor {
  return apply(op, { x }, options).y;
}

function cumsumCase(name: string, shape: number[], options: CumsumOptions): OpCase<CumsumOptions> {
  const n = shape.length === 0 ? 1 : shape[normalizeAxis(options.axis ?? -1, shape.length, name)]!;
  return { name, inputs: { x: { shape } }, options, terms: Math.max(1, n) };
}

const rows = 2 ** 10;

/** How suites see `cumsum`. */
export const cumsumEntry: OpEntry<CumsumOptions> = {
  kind: "op",
  name: "cumsum",
  kernels: [rowsKernel, columnsKernel],
  run: ({ x }, options) => ({ y: cumsum(x!, options) }),
  cases: [
    ...[1, 3, 17, 33, 65, 127].flatMap((n) => [
      cumsumCase(`rows n=${n}`, [5, n], {}),
      cumsumCase(`columns n=${n}`, [3, 7, n], { axis: 1, reverse: true }),
    ]),
    cumsumCase("rows, reverse", [6, 19], { reverse: true }),
    cumsumCase("columns", [2, 9, 3, 100], { axis: 1 }),
    cumsumCase("one row", [5000], {}),
    cumsumCase("empty", [3, 0], {}),
    cumsumCase("no rows", [0, 3], { axis: 1 }),
    { ...cumsumCase("scalar", [], {}), fails: "E_SHAPE" },
    { ...cumsumCase("not there", [3, 4], {}), options: { axis: 2 }, fails: "E_SHAPE" },
  ],
  bench: {
    inputs: { x: { shape: [rows, 1024] } },
    options: { axis: 0 },
    bytes: { forward: 8 * 1024 * rows, backward: 8 * 1024 * rows },
  },
};
