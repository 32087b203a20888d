/** The delta family token after token in plain loops: what the kernels are checked against. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { flagBits, intNames } from "./delta-job.ts";
import { decayCodes, sequenceRanges } from "./problem.ts";

/** One job, its words by name. */
export type HostJob = Readonly<Record<(typeof intNames)[number], number>> & {
  readonly scale: number;
  readonly has: (bit: keyof typeof flagBits) => boolean;
};

/** Names the shared ints. */
export function hostJob(ints: readonly number[], floats: readonly number[]): HostJob {
  const named = Object.fromEntries(intNames.map((name, i) => [name, ints[i]!]));
  const has = (bit: keyof typeof flagBits): boolean => (named["flags"]! & flagBits[bit]) !== 0;
  return { ...named, scale: floats[0]!, has } as HostJob;
}

/** A head of one sequence: where its rows begin and what a token does to its state. */
export interface HostHead {
  readonly begin: number;
  readonly end: number;
  readonly head: number;
  readonly keyHead: number;
  /** Index of (sequence, head) among the states. */
  readonly pair: number;
}

/** Every head of every sequence. */
export function hostHeads(job: HostJob, cuSeqlens: TypedArray): HostHead[] {
  const packed = job.has("packed");
  const ranges = sequenceRanges(job.sequences, job.time, packed ? cuSeqlens : undefined, job.sequences);
  return ranges.flatMap(([begin, end], n) =>
    Array.from({ length: job.valueHeads }, (_, head) => ({
      ...{ begin, end, head, pair: n * job.valueHeads + head },
      keyHead: Math.floor(head / (job.valueHeads / job.heads)),
    })),
  );
}

/** Elements of one head in the rows of token `row`. */
export function part(
  array: TypedArray,
  row: number,
  stride: number,
  head: number,
  width: number,
): TypedArray {
  return array.subarray(row * stride + head * width, row * stride + (head + 1) * width);
}

/** The decay factors of a token, one a key channel. */
export function decays(job: HostJob, g: TypedArray, row: number, head: number): Float64Array {
  const factors = new Float64Array(job.keyWidth).fill(1);
  if (job.decay === decayCodes.none) return factors;
  if (job.decay === decayCodes.key) {
    return factors.map((_, c) => Math.exp(g[row * job.gRow + head * job.keyWidth + c]!));
  }
  return factors.fill(Math.exp(g[row * job.gRow + head]!));
}

/** sum over key channels of x_c S_cj, for each value column j. */
export function readState(state: Float64Array, x: ArrayLike<number>, valueWidth: number): Float64Array {
  const result = new Float64Array(valueWidth);
  for (let c = 0; c < x.length; c++)
    for (let j = 0; j < valueWidth; j++) result[j]! += x[c]! * state[c * valueWidth + j]!;
  return result;
}

/** What a token leaves behind for the backward pass. */
export interface HostToken {
  readonly factors: Float64Array;
  /** v − retrieved, before beta. */
  readonly correction: Float64Array;
}

/** Decays and writes one token into the state; what the token reads is `output`. */
export function hostToken(
  job: HostJob,
  inputs: readonly TypedArray[],
  at: HostHead,
  row: number,
  state: Float64Array,
  output?: TypedArray,
): HostToken {
  const [q, eraseKey, writeKey, v, beta, g] = inputs as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const { keyWidth, valueWidth, scale } = job;
  const query = part(q, row, job.qRow, at.keyHead, keyWidth);
  const erase = part(eraseKey, row, job.eraseRow, at.keyHead, keyWidth);
  const write = part(writeKey, row, job.writeRow, at.keyHead, keyWidth);
  const values = part(v, row, job.vRow, at.head, valueWidth);
  const factors = decays(job, g, row, at.head);
  const before = job.has("readFirst") ? readState(state, query, valueWidth) : undefined;
  let retrieved = job.has("undecayedCorrection") ? readState(state, erase, valueWidth) : undefined;
  for (let i = 0; i < state.length; i++) state[i]! *= factors[Math.floor(i / valueWidth)]!;
  retrieved ??= readState(state, erase, valueWidth);
  const correction = retrieved.map((r, j) => values[j]! - r);
  const strength = beta[row * job.betaRow + at.head]!;
  for (let c = 0; c < keyWidth; c++)
    for (let j = 0; j < valueWidth; j++) state[c * valueWidth + j]! += write[c]! * strength * correction[j]!;
  const read = before ?? readState(state, query, valueWidth);
  output?.set(read.map((x) => scale * x));
  return { factors, correction };
}

/** The state that enters a head. */
export function enteringState(job: HostJob, initial: TypedArray, at: HostHead): Float64Array {
  const size = job.keyWidth * job.valueWidth;
  const state = new Float64Array(size);
  if (job.has("initial")) state.set(initial.subarray(at.pair * size, (at.pair + 1) * size));
  return state;
}

/** First kept slot of a sequence. */
function firstSlot(job: HostJob, at: HostHead): number {
  if (job.has("packed")) return Math.floor(at.begin / job.segment);
  const sequence = Math.floor(at.pair / job.valueHeads);
  return sequence * Math.floor(Math.max(0, job.time - 1) / job.segment);
}

/** Forward pass: operands q, erase key, write key, v, beta, g, initial state, cuSeqlens, o, final state, kept. */
export const hostForward: HostKernel = (buffers, ints, floats) => {
  const job = hostJob(ints, floats);
  const oRow = ints[intNames.length]!;
  const [initial, cuSeqlens, o, final, kept] = buffers.slice(6) as TypedArray[];
  const size = job.keyWidth * job.valueWidth;
  for (const at of hostHeads(job, cuSeqlens!)) {
    const state = enteringState(job, initial!, at);
    for (let row = at.begin; row < at.end; row++) {
      const past = row - at.begin;
      if (job.has("kept") && past > 0 && past % job.segment === 0) {
        const slot = (firstSlot(job, at) + past / job.segment - 1) * job.valueHeads + at.head;
        kept!.set(state, slot * size);
      }
      hostToken(job, buffers, at, row, state, part(o!, row, oRow, at.head, job.valueWidth));
    }
    if (job.has("final")) final!.set(state, at.pair * size);
  }
};

/** One token for rows of a slab: the shared operands with slots and slab as initial state and cuSeqlens, then o. */
export const hostStep: HostKernel = (buffers, ints, floats) => {
  const job = hostJob(ints, floats);
  const oRow = ints[intNames.length]!;
  const [slots, slab, o] = buffers.slice(6) as TypedArray[];
  const size = job.keyWidth * job.valueWidth;
  for (let row = 0; row < job.sequences; row++)
    for (let head = 0; head < job.valueHeads; head++) {
      const at = (slots![row]! * job.valueHeads + head) * size;
      const state = Float64Array.from(slab!.subarray(at, at + size));
      const keyHead = Math.floor(head / (job.valueHeads / job.heads));
      const here = { begin: row, end: row + 1, head, keyHead, pair: 0 };
      hostToken(job, buffers, here, row, state, part(o!, row, oRow, head, job.valueWidth));
      slab!.set(state, at);
    }
};
