/** The backward pass of the delta family token after token, last token first. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import type { HostHead, HostJob, HostToken } from "./delta-host.ts";
import { enteringState, hostHeads, hostJob, hostToken, part } from "./delta-host.ts";
import { intNames } from "./delta-job.ts";
import { decayCodes } from "./problem.ts";

/** Row strides of the cotangent and the gradients, in the order of their ints. */
const gradientRows = ["dORow", "dqRow", "dEraseRow", "dWriteRow", "dvRow", "dBetaRow", "dgRow"] as const;
type Strides = Readonly<Record<(typeof gradientRows)[number], number>>;

interface Gradients {
  readonly dO: TypedArray;
  readonly dq: TypedArray;
  readonly dErase: TypedArray;
  readonly dWrite: TypedArray;
  readonly dv: TypedArray;
  readonly dBeta: TypedArray;
  readonly dg: TypedArray;
  readonly stride: Strides;
}

/** S x for every row c of the state. */
function applyState(state: Float64Array, x: ArrayLike<number>, keyWidth: number): Float64Array {
  const width = x.length;
  const result = new Float64Array(keyWidth);
  for (let c = 0; c < keyWidth; c++)
    for (let j = 0; j < width; j++) result[c]! += state[c * width + j]! * x[j]!;
  return result;
}

/** Transposed product: one number a value column. */
function applyTransposed(state: Float64Array, x: ArrayLike<number>, valueWidth: number): Float64Array {
  const result = new Float64Array(valueWidth);
  for (let c = 0; c < x.length; c++)
    for (let j = 0; j < valueWidth; j++) result[j]! += state[c * valueWidth + j]! * x[c]!;
  return result;
}

function addTo(target: TypedArray, values: ArrayLike<number>): void {
  for (let i = 0; i < target.length; i++) target[i]! += values[i]!;
}

/** Adds x yᵀ to a state. */
function addOuter(state: Float64Array, x: ArrayLike<number>, y: ArrayLike<number>, sign: number): void {
  for (let c = 0; c < x.length; c++)
    for (let j = 0; j < y.length; j++) state[c * y.length + j]! += sign * x[c]! * y[j]!;
}

const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
};

/** dg of one token: the decayed state times its gradient, summed over the columns and, with a scalar, the channels. */
function gateGradient(job: HostJob, target: TypedArray, decayed: Float64Array, dState: Float64Array): void {
  const perKey = job.decay === decayCodes.key;
  target.fill(0);
  for (let c = 0; c < job.keyWidth; c++)
    for (let j = 0; j < job.valueWidth; j++) {
      const i = c * job.valueWidth + j;
      target[perKey ? c : 0]! += decayed[i]! * dState[i]!;
    }
}

/** One token: `before` is the state that entered it, `dState` the gradient of the one that left; it becomes the former's. */
function tokenBackward(
  job: HostJob,
  inputs: readonly TypedArray[],
  out: Gradients,
  at: HostHead,
  row: number,
  token: HostToken,
  before: Float64Array,
  dState: Float64Array,
): void {
  const { keyWidth, valueWidth } = job;
  const query = part(inputs[0]!, row, job.qRow, at.keyHead, keyWidth);
  const erase = part(inputs[1]!, row, job.eraseRow, at.keyHead, keyWidth);
  const write = part(inputs[2]!, row, job.writeRow, at.keyHead, keyWidth);
  const strength = inputs[4]![row * job.betaRow + at.head]!;
  const dO = Float64Array.from(
    part(out.dO, row, out.stride.dORow, at.head, valueWidth),
    (x) => job.scale * x,
  );
  const decayed = before.map((s, i) => s * token.factors[Math.floor(i / valueWidth)]!);
  const written = token.correction.map((x) => strength * x);
  const after = decayed.slice();
  addOuter(after, write, written, 1);
  addOuter(dState, query, dO, 1);
  addTo(part(out.dq, row, out.stride.dqRow, at.keyHead, keyWidth), applyState(after, dO, keyWidth));
  const dWritten = applyTransposed(dState, write, valueWidth);
  addTo(
    part(out.dWrite, row, out.stride.dWriteRow, at.keyHead, keyWidth),
    applyState(dState, written, keyWidth),
  );
  out.dBeta[row * out.stride.dBetaRow + at.head] = dot(dWritten, token.correction);
  const dCorrection = dWritten.map((x) => strength * x);
  part(out.dv, row, out.stride.dvRow, at.head, valueWidth).set(dCorrection);
  const [dErase, eraseRow] = job.has("oneKey")
    ? [out.dWrite, out.stride.dWriteRow]
    : [out.dErase, out.stride.dEraseRow];
  const minus = dCorrection.map((x) => -x);
  addTo(part(dErase, row, eraseRow, at.keyHead, keyWidth), applyState(decayed, minus, keyWidth));
  addOuter(dState, erase, dCorrection, -1);
  if (job.has("gateGradient")) {
    const width = job.decay === decayCodes.key ? keyWidth : 1;
    gateGradient(job, part(out.dg, row, out.stride.dgRow, at.head, width), decayed, dState);
  }
  for (let i = 0; i < dState.length; i++) dState[i]! *= token.factors[Math.floor(i / valueWidth)]!;
}

/** All tokens of one head: states are kept where segments begin and run again segment by segment. */
function headBackward(
  job: HostJob,
  inputs: readonly TypedArray[],
  out: Gradients,
  at: HostHead,
  dState: Float64Array,
): void {
  const length = at.end - at.begin;
  const segment = Math.max(1, Math.ceil(Math.sqrt(length)));
  const state = enteringState(job, inputs[6]!, at);
  const kept: Float64Array[] = [];
  for (let row = at.begin; row < at.end; row++) {
    if ((row - at.begin) % segment === 0) kept.push(state.slice());
    hostToken(job, inputs, at, row, state);
  }
  for (let s = kept.length - 1; s >= 0; s--) {
    const first = at.begin + s * segment;
    const last = Math.min(at.end, first + segment);
    const running = kept[s]!;
    const befores: Float64Array[] = [];
    const tokens: HostToken[] = [];
    for (let row = first; row < last; row++) {
      befores.push(running.slice());
      tokens.push(hostToken(job, inputs, at, row, running));
    }
    for (let row = last - 1; row >= first; row--)
      tokenBackward(job, inputs, out, at, row, tokens[row - first]!, befores[row - first]!, dState);
  }
}

/**
 * Backward pass: the shared operands, kept states, dO, the gradient of the final state, dq, dErase, dWrite, dv, dBeta,
 * dg, and the gradient of the initial state.
 */
export const hostBackward: HostKernel = (buffers, ints, floats) => {
  const job = hostJob(ints, floats);
  const stride = Object.fromEntries(
    gradientRows.map((name, i) => [name, ints[intNames.length + i]!]),
  ) as Strides;
  const [dO, dFinal, dq, dErase, dWrite, dv, dBeta, dg, dInitial] = buffers.slice(9) as TypedArray[];
  const out: Gradients = {
    ...{ dO: dO!, dq: dq!, dErase: dErase!, dWrite: dWrite!, dv: dv!, dBeta: dBeta!, dg: dg!, stride },
  };
  const heads = hostHeads(job, buffers[7]!);
  for (const at of heads)
    for (let row = at.begin; row < at.end; row++) {
      part(dq!, row, stride.dqRow, at.keyHead, job.keyWidth).fill(0);
      part(dWrite!, row, stride.dWriteRow, at.keyHead, job.keyWidth).fill(0);
      if (!job.has("oneKey")) part(dErase!, row, stride.dEraseRow, at.keyHead, job.keyWidth).fill(0);
    }
  const size = job.keyWidth * job.valueWidth;
  for (const at of heads) {
    const dState = new Float64Array(size);
    if (job.has("final")) dState.set(dFinal!.subarray(at.pair * size, (at.pair + 1) * size));
    headBackward(job, buffers, out, at, dState);
    if (job.has("initialGradient")) dInitial!.set(dState, at.pair * size);
  }
};
