import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** How weights become factors: none, w, or 1 + w. */
export const weightModes = { none: 0, plain: 1, zeroCentered: 2 } as const;

function factor(w: TypedArray, i: number, mode: number): number {
  return mode === weightModes.none ? 1 : w[i]! + (mode === weightModes.zeroCentered ? 1 : 0);
}

function sigmoid(z: number): number {
  return 1 / (1 + Math.exp(-z));
}

interface Gate {
  readonly value: (z: number) => number;
  readonly slope: (z: number) => number;
}

const silu: Gate = {
  value: (z) => z * sigmoid(z),
  slope: (z) => sigmoid(z) * (1 + z * sigmoid(-z)),
};
const plainSigmoid: Gate = { value: sigmoid, slope: (z) => sigmoid(z) * sigmoid(-z) };
const open: Gate = { value: () => 1, slope: () => 0 };

/** Sizes and choices of one job, out of a kernel's ints. */
interface Job {
  readonly n: number;
  readonly stride: number;
  readonly groups: number;
  readonly mode: number;
  readonly zStride: number;
  readonly gate: Gate;
  readonly first: boolean;
  readonly rows: number;
}

function plainJob(ints: readonly number[], rows: number): Job {
  const [n, stride, groups, mode] = ints as [number, number, number, number];
  return { n, stride, groups, mode, zStride: 0, gate: open, first: false, rows };
}

function gatedJob(ints: readonly number[], rows: number): Job {
  const gate = ints[5] === 1 ? silu : plainSigmoid;
  return { ...plainJob(ints, rows), zStride: ints[4]!, gate, first: ints[6] === 1 };
}

function forward(
  job: Job,
  x: TypedArray,
  w: TypedArray,
  z: TypedArray,
  y: TypedArray,
  r: TypedArray,
  floats: readonly number[],
): void {
  const { n, stride, groups, mode, zStride, gate, first } = job;
  for (let row = 0; row < job.rows; row++) {
    const input = (i: number): number =>
      x[row * stride + i]! * (first ? gate.value(z[row * zStride + i]!) : 1);
    let sum = 0;
    for (let i = 0; i < n; i++) sum += input(i) ** 2;
    r[row] = 1 / Math.sqrt(sum * floats[0]! + floats[1]!);
    for (let i = 0; i < n; i++) {
      const normed = input(i) * r[row]! * factor(w, (row % groups) * n + i, mode);
      y[row * n + i] = normed * (first ? 1 : gate.value(z[row * zStride + i]!));
    }
  }
}

/** buffers: x, w, y, r. ints: n, stride, groups, mode, rows. floats: share, eps. */
export const rmsForward: HostKernel = (buffers, ints, floats) => {
  const [x, w, y, r] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray];
  forward(plainJob(ints, ints[4]!), x, w, x, y, r, floats);
};

/** buffers: x, w, z, y, r. ints: n, stride, groups, mode, zStride, silu, first, rows. floats: share, eps. */
export const gatedForward: HostKernel = (buffers, ints, floats) => {
  const [x, w, z, y, r] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray, TypedArray];
  forward(gatedJob(ints, ints[7]!), x, w, z, y, r, floats);
};

interface Operands {
  readonly x: TypedArray;
  readonly w: TypedArray;
  readonly z: TypedArray;
  readonly r: TypedArray;
  readonly dy: TypedArray;
  readonly dx: TypedArray;
  readonly dz: TypedArray;
  readonly dw: TypedArray;
}

/** One row; its part of the gradient by w is added at `to`. */
function backwardRow(job: Job, o: Operands, row: number, share: number, to: number): void {
  const { n, groups, mode, gate, first } = job;
  const from = row * job.stride;
  const gateFrom = row * job.zStride;
  const r = o.r[row]!;
  const gateAt = (i: number): number => gate.value(o.z[gateFrom + i]!);
  const h = (i: number): number => o.x[from + i]! * (first ? gateAt(i) : 1);
  const du = (i: number): number => o.dy[row * n + i]! * (first ? 1 : gateAt(i));
  const weight = (i: number): number => factor(o.w, (row % groups) * n + i, mode);
  let sum = 0;
  for (let i = 0; i < n; i++) sum += du(i) * weight(i) * h(i);
  for (let i = 0; i < n; i++) {
    if (mode !== weightModes.none) o.dw[to + i]! += h(i) * r * du(i);
    const dh = r * weight(i) * du(i) - sum * share * r ** 3 * h(i);
    o.dx[row * n + i] = dh * (first ? gateAt(i) : 1);
    if (gate === open) continue;
    const behind = first ? dh * o.x[from + i]! : o.dy[row * n + i]! * h(i) * r * weight(i);
    o.dz[row * n + i] = behind * gate.slope(o.z[gateFrom + i]!);
  }
}

function backward(job: Job, o: Operands, block: number, share: number): void {
  const { n, groups, mode, rows } = job;
  const perUnit = block * groups;
  if (mode !== weightModes.none) o.dw.fill(0, 0, Math.ceil(rows / perUnit) * groups * n);
  for (let row = 0; row < rows; row++) {
    backwardRow(job, o, row, share, (Math.floor(row / perUnit) * groups + (row % groups)) * n);
  }
}

/** buffers: x, w, r, dy, dx, dw. ints: n, stride, groups, mode, rows, block. floats: share. */
export const rmsBackward: HostKernel = (buffers, ints, floats) => {
  const [x, w, r, dy, dx, dw] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  backward(plainJob(ints, ints[4]!), { x, w, z: x, r, dy, dx, dz: dx, dw }, ints[5]!, floats[0]!);
};

/** buffers: x, w, z, r, dy, dx, dz, dw. ints: n, stride, groups, mode, zStride, silu, first, rows, block. */
export const gatedBackward: HostKernel = (buffers, ints, floats) => {
  const [x, w, z, r, dy, dx, dz, dw] = buffers as readonly TypedArray[] as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  backward(gatedJob(ints, ints[7]!), { x, w, z, r, dy, dx, dz, dw }, ints[8]!, floats[0]!);
};

/** buffers: x, w, b, y, kept. ints: n, stride, mode, biased, rows. floats: eps. */
export const layerForward: HostKernel = (buffers, ints, floats) => {
  const [x, w, b, y, kept] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray, TypedArray];
  const [n, stride, mode, biased, rows] = ints as [number, number, number, number, number];
  for (let row = 0; row < rows; row++) {
    let mean = 0;
    for (let i = 0; i < n; i++) mean += x[row * stride + i]! / n;
    let variance = 0;
    for (let i = 0; i < n; i++) variance += (x[row * stride + i]! - mean) ** 2 / n;
    const r = 1 / Math.sqrt(variance + floats[0]!);
    kept[2 * row] = mean;
    kept[2 * row + 1] = r;
    for (let i = 0; i < n; i++) {
      const normed = (x[row * stride + i]! - mean) * r;
      y[row * n + i] = normed * factor(w, i, mode) + (biased === 1 ? b[i]! : 0);
    }
  }
};

/** buffers: x, w, kept, dy, dx, dwb. ints: n, stride, mode, rows, block, learns. */
export const layerBackward: HostKernel = (buffers, ints) => {
  const [x, w, kept, dy, dx, dwb] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const [n, stride, mode, rows, block, learns] = ints as [number, number, number, number, number, number];
  if (learns === 1) dwb.fill(0, 0, Math.ceil(rows / block) * 2 * n);
  for (let row = 0; row < rows; row++) {
    const r = kept[2 * row + 1]!;
    const to = Math.floor(row / block) * 2 * n;
    const h = (i: number): number => (x[row * stride + i]! - kept[2 * row]!) * r;
    let sum = 0;
    let product = 0;
    for (let i = 0; i < n; i++) {
      const g = dy[row * n + i]! * factor(w, i, mode);
      sum += g / n;
      product += (g * h(i)) / n;
      if (learns === 0) continue;
      dwb[to + i]! += dy[row * n + i]! * h(i);
      dwb[to + n + i]! += dy[row * n + i]!;
    }
    for (let i = 0; i < n; i++) {
      dx[row * n + i] = r * (dy[row * n + i]! * factor(w, i, mode) - sum - h(i) * product);
    }
  }
};
