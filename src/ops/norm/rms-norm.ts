/** RMS norm, plain or gated, and the l2 norm, which is the same rows with another share. */
import { rowsOf } from "../../autograd/rows.ts";
import { empty } from "../../autograd/tensor.ts";
import type { Kernel, Slice } from "../../device/device.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { formatShape } from "../../tensor/shape.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats } from "../elementwise.ts";
import type { Op, Tensor } from "../op.ts";
import { gatedBackward, gatedForward, rmsBackward, rmsForward, weightModes } from "./host.ts";
import { type Blocks, blocksOf, checkEps, weightGradient } from "./weights.ts";

const forwardKernel: Kernel = { key: "rmsNorm.rows.forward", host: rmsForward };
const backwardKernel: Kernel = { key: "rmsNorm.rows.backward", host: rmsBackward };
const gatedForwardKernel: Kernel = { key: "rmsNorm.gated.forward", host: gatedForward };
const gatedBackwardKernel: Kernel = { key: "rmsNorm.gated.backward", host: gatedBackward };

/** Kernels of RMS norms. */
export const rmsNormKernels: readonly Kernel[] = [
  forwardKernel,
  backwardKernel,
  gatedForwardKernel,
  gatedBackwardKernel,
];

/** Kernels of the l2 norm. */
export const l2NormKernels: readonly Kernel[] = [forwardKernel, backwardKernel];

/** Options of `rmsNorm`. */
export interface RmsNormOptions {
  /** Added to the mean of squares, inside the root; 1e-6 unless given. */
  readonly eps?: number;
  /** Multiply by 1 + weight instead of weight. */
  readonly zeroCentered?: boolean;
  /** Normalise this many equal parts of the last axis each by itself; 1 unless given. */
  readonly groups?: number;
}

/** Options of `gatedRmsNorm`. */
export interface GatedRmsNormOptions extends RmsNormOptions {
  /** What the gate passes through; silu unless given. */
  readonly activation?: "silu" | "sigmoid";
  /** Whether the gate multiplies after the norm (the default) or before it. */
  readonly order?: "norm-first" | "gate-first";
}

type Inputs = { x: Tensor; weight?: Tensor | undefined; gate?: Tensor | undefined };

/** The l2 norm divides by the sum of squares, the RMS norm by their mean. */
type Options = GatedRmsNormOptions & { readonly norm: "mean" | "sum" };

/** What forward finds out and backward uses again. */
interface Job {
  readonly r: Tensor;
  /** Rows of n floats; `groups` of them make one of the rows that share weights. */
  readonly n: number;
  readonly rows: number;
  readonly groups: number;
  readonly mode: number;
  readonly share: number;
}

/** An operand as rows of n floats. */
function partsOf(x: Tensor, n: number, groups: number): { readonly slice: Slice; readonly stride: number } {
  return groups === 1 ? rowsOf(x) : { slice: packed(x).layout, stride: n };
}

function solve(who: string, inputs: Inputs, options: Options): Omit<Job, "r"> {
  const { x, weight, gate } = inputs;
  const { groups = 1, zeroCentered = false, eps = 1e-6 } = options;
  checkFloats(who, "x", x);
  checkEps(who, eps);
  const { D } = solveAxes(who, {
    x: { shape: x.shape, axes: "… D" },
    weight: weight && { shape: weight.shape, axes: "D" },
    gate: gate && { shape: gate.shape, axes: "… D" },
  });
  if (!Number.isInteger(groups) || groups < 1) {
    throw new ConfigError(`[${who}] groups is a count: expected a whole number >= 1, got ${groups}`);
  }
  if (D % groups !== 0) {
    throw new ShapeError(
      `[${who}] x has a last axis that groups do not divide: expected a multiple of ${groups}, got ${formatShape(x.shape)}`,
    );
  }
  const n = D / groups;
  return {
    n,
    rows: n === 0 ? 0 : x.size / n,
    groups,
    mode:
      weight === undefined ? weightModes.none : zeroCentered ? weightModes.zeroCentered : weightModes.plain,
    share: options.norm === "mean" ? 1 / n : 1,
  };
}

/** zStride, silu, first: what gated kernels are told more. */
function gateInts(options: Options, zStride: number): readonly [number, number, number] {
  return [zStride, options.activation === "sigmoid" ? 0 : 1, options.order === "gate-first" ? 1 : 0];
}

function forward(who: string, inputs: Inputs, options: Options): { outputs: { y: Tensor }; saved: Job } {
  const { x, weight, gate } = inputs;
  const { device, dtype } = x;
  const job = solve(who, inputs, options);
  const { n, rows, groups, mode, share } = job;
  const y = empty(device, x.shape, { dtype });
  const r = empty(device, [rows], { dtype });
  if (y.size > 0) {
    const input = partsOf(x, n, groups);
    const w = weight === undefined ? y.layout : packed(weight).layout;
    const z = gate && partsOf(gate, n, groups);
    device.run({
      kernel: z === undefined ? forwardKernel : gatedForwardKernel,
      buffers:
        z === undefined
          ? [input.slice, w, y.layout, r.layout]
          : [input.slice, w, z.slice, y.layout, r.layout],
      ints:
        z === undefined
          ? [n, input.stride, groups, mode, rows]
          : [n, input.stride, groups, mode, ...gateInts(options, z.stride), rows],
      floats: [share, options.eps ?? 1e-6],
      units: rows,
      work: x.size * (z === undefined ? 3 : 18),
      scratchBytes: 4 * n * groups,
    });
  }
  return { outputs: { y }, saved: { ...job, r } };
}

function backward(
  { x, weight, gate }: Inputs,
  options: Options,
  dy: Tensor,
  job: Job,
): { x: Tensor; weight?: Tensor; gate?: Tensor } {
  const { device, dtype } = x;
  const { n, rows, groups, mode, share, r } = job;
  const dx = empty(device, x.shape, { dtype });
  const dz = gate && empty(device, x.shape, { dtype });
  const blocks: Blocks = blocksOf(rows / groups, n * groups, rows === 0 ? 0 : mode);
  const partial = empty(device, [blocks.units * (mode === 0 ? 0 : n * groups)], { dtype });
  if (x.size > 0) {
    const input = partsOf(x, n, groups);
    const w = weight === undefined ? dx.layout : packed(weight).layout;
    const z = gate && partsOf(gate, n, groups);
    const grads = [packed(dy).layout, dx.layout] as const;
    device.run({
      kernel: z === undefined ? backwardKernel : gatedBackwardKernel,
      buffers:
        z === undefined
          ? [input.slice, w, r.layout, ...grads, partial.layout]
          : [input.slice, w, z.slice, r.layout, ...grads, dz!.layout, partial.layout],
      ints:
        z === undefined
          ? [n, input.stride, groups, mode, rows, blocks.length]
          : [n, input.stride, groups, mode, ...gateInts(options, z.stride), rows, blocks.length],
      floats: [share],
      units: blocks.units,
      work: x.size * (z === undefined ? 6 : 24),
      scratchBytes: 4 * (n * groups + 2 * n) + 32,
    });
  }
  return {
    x: dx,
    ...(weight && { weight: weightGradient(partial, blocks.units, weight.shape) }),
    ...(dz && { gate: dz }),
  };
}

/** The op under a name of its own; `norm` says what the squares are divided by. */
export function makeRmsNorm(name: string): Op<Inputs, Options, { y: Tensor }, Job> {
  return {
    name,
    forward: (inputs, options) => forward(name, inputs, options),
    backward: ({ inputs, options, grads: { y }, saved }) =>
      y === undefined ? {} : backward(inputs, options, y, saved),
  };
}
