import { rowsOf } from "../../autograd/rows.ts";
import { empty, tensor } from "../../autograd/tensor.ts";
import type { Device, HostKernel, Kernel } from "../../device/device.ts";
import { ConfigError, DtypeError, ShapeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";

const host: HostKernel = (buffers, ints) => {
  const [x, cosines, sines, positions, y] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const [rows, time, heads, width, half, stride, offset, given, sign] = ints as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let row = 0; row < rows; row++) {
    const position = given ? positions[row]! : offset + (row % time);
    for (let h = 0; h < heads; h++) {
      const from = row * stride + h * width;
      const to = (row * heads + h) * width;
      for (let i = 0; i < width; i++) y[to + i] = x[from + i]!;
      for (let i = 0; i < half; i++) {
        const c = cosines[position * half + i]!;
        const s = sign * sines[position * half + i]!;
        y[to + i] = x[from + i]! * c - x[from + half + i]! * s;
        y[to + half + i] = x[from + half + i]! * c + x[from + i]! * s;
      }
    }
  }
};

const kernel: Kernel = { key: "rotary.rows.forward", host };

/** Cosines and sines of every angle that positions below `positions` need. */
export interface RotaryTable {
  /** Widths up to this one are turned; 2·half <= K. */
  readonly half: number;
  readonly positions: number;
  /** `[positions, half]`. */
  readonly cosines: Tensor;
  readonly sines: Tensor;
}

/**
 * The angles of rotary positions: θ_{p,i} = p · base^(−2i/R), R the turned width (RoFormer, arXiv 2104.09864v5, eq. 15).
 *
 * Computed in float64 and rounded once; kept on the device until disposed.
 *
 * @throws ConfigError when `width` is odd or not positive.
 * @example
 * const table = rotaryTable(device, { width: 64, positions: 2048 });
 */
export function rotaryTable(
  device: Device,
  options: { readonly width: number; readonly positions: number; readonly base?: number },
): RotaryTable {
  const { width, positions, base = 10_000 } = options;
  if (!Number.isInteger(width) || width < 2 || width % 2 !== 0) {
    throw new ConfigError(`[rotaryTable] the turned width is an even number >= 2, got ${width}`);
  }
  const half = width / 2;
  const cosines = new Float64Array(positions * half);
  const sines = new Float64Array(positions * half);
  for (let p = 0; p < positions; p++) {
    for (let i = 0; i < half; i++) {
      const angle = p * base ** ((-2 * i) / width);
      cosines[p * half + i] = Math.cos(angle);
      sines[p * half + i] = Math.sin(angle);
    }
  }
  const make = (values: Float64Array): Tensor =>
    tensor(device, values, [positions, half], { persistent: true });
  return { half, positions, cosines: make(cosines), sines: make(sines) };
}

/** Where the rows of x stand. */
export interface RotaryOptions {
  /** Position of the first token; 0 unless given. Not used where `positions` is. */
  readonly offset?: number;
  /** The largest of `positions` where a caller knows it: they are then not read back to check them. */
  readonly last?: number;
}

type Inputs = { x: Tensor; cosines: Tensor; sines: Tensor; positions?: Tensor | undefined };

function turn({ x, cosines, sines, positions }: Inputs, offset: number, direction: 1 | -1): Tensor {
  const sizes = solveAxes("rotary", {
    x: { shape: x.shape, axes: "B T H K" },
    cosines: { shape: cosines.shape, axes: "P half" },
    sines: { shape: sines.shape, axes: "P half" },
    positions: positions && { shape: positions.shape, axes: "B T" },
  });
  if (2 * sizes.half > sizes.K) {
    throw new ShapeError(
      `[rotary] the turned width is at most K: the table turns ${2 * sizes.half}, x has K ${sizes.K}`,
    );
  }
  if (positions === undefined && offset + sizes.T > sizes.P) {
    throw new ShapeError(
      `[rotary] the table holds ${sizes.P} positions, x needs ${offset + sizes.T}`,
      "Build a longer table with rotaryTable.",
    );
  }
  if (positions !== undefined) checkPositions(positions, sizes.P);
  const y = empty(x.device, x.shape, { dtype: x.dtype });
  const rows = rowsOf(x, 2);
  const places = positions === undefined ? y : packed(positions);
  const count = sizes.B * sizes.T;
  x.device.run({
    kernel,
    buffers: [rows.slice, packed(cosines).layout, packed(sines).layout, places.layout, y.layout],
    ints: [count, sizes.T, sizes.H, sizes.K, sizes.half, rows.stride, offset, positions ? 1 : 0, direction],
    floats: [],
    units: Math.ceil(count / 16),
    work: y.size * 2,
    scratchBytes: 0,
  });
  return y;
}

/** Tables long enough for positions that were read before: all layers of a call share them. */
const within = new WeakMap<Tensor, number>();

function checkPositions(positions: Tensor, count: number): void {
  if (positions.dtype !== "int32")
    throw new DtypeError(`[rotary] positions are whole numbers: expected int32, got ${positions.dtype}`);
  if ((within.get(positions) ?? Number.POSITIVE_INFINITY) <= count) return;
  const values = positions.dataSync();
  const at = values.findIndex((value) => !(value >= 0 && value < count));
  if (at >= 0) {
    throw new ShapeError(
      `[rotary] positions lie in the table: expected 0 to ${count - 1}, got ${values[at]} at token ${at}`,
      "Build a longer table with rotaryTable.",
    );
  }
  within.set(positions, count);
}

const op: Op<Inputs, number, { y: Tensor }> = {
  name: "rotary",
  forward: (inputs, offset) => ({ outputs: { y: turn(inputs, offset, 1) }, saved: undefined }),
  backward: ({ inputs, options: offset, grads: { y } }) => ({
    x: y && turn({ ...inputs, x: y }, offset, -1),
  }),
};

/**
 * Rotary positions: every pair (x_i, x_{i+half}) of a head turned by its position's angle; channels beyond the turned
 * width pass unchanged (RoFormer, arXiv 2104.09864v5, eq. 34, pairs split by halves).
 *
 * Inputs: `x [B, T, H, K]`, a table, `positions int32 [B, T]` (0, 1, 2, … from `offset` where absent). Returns
 * `[B, T, H, K]`. The gradient turns back. Cost: the bytes of x once read and once written.
 *
 * @throws ShapeError when the table is wider than K or shorter than the positions asked for.
 * @example
 * const turned = rotary(q, rotaryTable(device, { width: K, positions: 128 }));
 */
export function rotary(
  x: Tensor,
  table: RotaryTable,
  positions?: Tensor,
  options: RotaryOptions = {},
): Tensor {
  const { offset = 0, last } = options;
  if (positions !== undefined && last !== undefined) within.set(positions, last + 1);
  return apply(op, { x, cosines: table.cosines, sines: table.sines, positions }, offset).y;
}

const angles = (positions: number, half: number) =>
  ({ shape: [positions, half], differentiable: false }) as const;

/** How suites see `rotary`. The table is drawn at random: a turn is linear in it. */
export const rotaryEntry: OpEntry<RotaryOptions> = {
  kind: "op",
  name: "rotary",
  kernels: [kernel],
  run: ({ x, cosines, sines, positions }, { offset = 0 }) => ({
    y: apply(op, { x: x!, cosines: cosines!, sines: sines!, positions }, offset).y,
  }),
  cases: [
    {
      name: "full width",
      inputs: { x: { shape: [2, 17, 3, 8] }, cosines: angles(17, 4), sines: angles(17, 4) },
      options: {},
      terms: 2,
    },
    {
      name: "partial width",
      inputs: { x: { shape: [1, 33, 2, 17] }, cosines: angles(40, 3), sines: angles(40, 3) },
      options: { offset: 7 },
      terms: 2,
    },
    {
      name: "positions",
      inputs: {
        x: { shape: [2, 3, 1, 16] },
        cosines: angles(9, 8),
        sines: angles(9, 8),
        positions: { shape: [2, 3], sample: "values", values: [0, 1, 2, 8, 0, 5] },
      },
      options: {},
      terms: 2,
    },
    {
      name: "empty",
      inputs: { x: { shape: [2, 0, 1, 16] }, cosines: angles(9, 8), sines: angles(9, 8) },
      options: {},
      terms: 2,
    },
    {
      name: "positions behind the table",
      inputs: {
        x: { shape: [1, 3, 1, 4] },
        cosines: angles(4, 2),
        sines: angles(4, 2),
        positions: { shape: [1, 3], sample: "values", values: [0, 4, 1] },
      },
      options: {},
      terms: 2,
      fails: "E_SHAPE",
    },
    {
      name: "positions before the table",
      inputs: {
        x: { shape: [1, 3, 1, 4] },
        cosines: angles(4, 2),
        sines: angles(4, 2),
        positions: { shape: [1, 3], sample: "values", values: [0, -1, 1] },
      },
      options: {},
      terms: 2,
      fails: "E_SHAPE",
    },
    {
      name: "too far",
      inputs: { x: { shape: [1, 5, 1, 4] }, cosines: angles(4, 2), sines: angles(4, 2) },
      options: {},
      terms: 2,
      fails: "E_SHAPE",
    },
  ],
  bench: {
    inputs: { x: { shape: [1, 4096, 8, 64] }, cosines: angles(4096, 32), sines: angles(4096, 32) },
    options: {},
    bytes: { forward: 8 * 4096 * 512, backward: 8 * 4096 * 512 },
  },
};
