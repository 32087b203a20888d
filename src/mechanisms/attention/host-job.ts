/** The argument block of the tiled kernels as the host loops read it. */
import type { TypedArray } from "../../tensor/dtype.ts";
import {
  type IntegerName,
  integerNames,
  type OperandName,
  operandNames,
  type StridedName,
  stridedNames,
} from "./problem.ts";

/** Strides of an operand's batch, token and head axes, in elements. */
export type Strides = readonly [batch: number, token: number, head: number];

/** One dispatch, by names. */
export type HostJob = Readonly<Record<OperandName, TypedArray>> &
  Readonly<Record<IntegerName, number>> & {
    readonly strides: Readonly<Record<StridedName, Strides>>;
    readonly scale: number;
  };

/** Names the operands, integers and floats of a dispatch. */
export function readJob(
  buffers: readonly TypedArray[],
  ints: readonly number[],
  floats: readonly number[],
): HostJob {
  const entries: [string, unknown][] = [
    ...operandNames.map((name, i): [string, unknown] => [name, buffers[i]]),
    ...integerNames.map((name, i): [string, unknown] => [name, ints[i]]),
  ];
  const at = (i: number, axis: number): number => ints[integerNames.length + 3 * i + axis]!;
  const strides = stridedNames.map((name, i) => [name, [at(i, 0), at(i, 1), at(i, 2)]]);
  return {
    ...Object.fromEntries(entries),
    strides: Object.fromEntries(strides),
    scale: floats[0]!,
  } as HostJob;
}

/** Where the row of a head begins. */
export function rowAt(strides: Strides, batch: number, token: number, head: number): number {
  return batch * strides[0] + token * strides[1] + head * strides[2];
}

/** One query with the keys it may see: keys [first, end) of its sequence, hidden ones among them. */
export interface HostRow {
  readonly batch: number;
  readonly head: number;
  readonly keyHead: number;
  /** Token of the query and of key 0 of its sequence, counted within the batch row. */
  readonly token: number;
  readonly keyBegin: number;
  /** Batch row of keys and values. */
  readonly slot: number;
  readonly first: number;
  readonly end: number;
  /** Place of the query in lse, delta and the other `[B,T,HQ]`. */
  readonly statistic: number;
}

/** The sequences of a batch row: where each begins, and its queries, keys, and by how much a query sees ahead of itself. */
function sequencesOf(job: HostJob, batch: number): readonly (readonly [number, number, number, number])[] {
  if (job.sequences > 0)
    return Array.from({ length: job.sequences }, (_, n) => {
      const begin = job.cuSeqlens[n]!;
      const length = job.cuSeqlens[n + 1]! - begin;
      return [begin, length, length, job.offset];
    });
  if (job.cached === 0) return [[0, job.time, job.keyTime, job.offset]];
  const keys = job.lengths[batch]!;
  return [[0, job.time, keys, job.offset + keys - job.time]];
}

/** Every query of a job in the order of batch rows, heads and tokens. */
export function* rowsOf(job: HostJob): Generator<HostRow> {
  const { batch: rows, queryHeads, keyHeads, time, causal, window } = job;
  for (let batch = 0; batch < rows; batch++) {
    const slot = job.cached === 0 ? batch : job.slots[batch]!;
    for (let head = 0; head < queryHeads; head++) {
      const keyHead = Math.floor(head / (queryHeads / keyHeads));
      for (const [begin, queries, keys, shift] of sequencesOf(job, batch)) {
        for (let i = 0; i < queries; i++) {
          const token = begin + i;
          const first = window > 0 ? Math.max(0, i + shift - window + 1) : 0;
          const end = causal ? Math.max(0, Math.min(keys, i + shift + 1)) : keys;
          const statistic = (batch * time + token) * queryHeads + head;
          yield { batch, head, keyHead, token, keyBegin: begin, slot, first, end, statistic };
        }
      }
    }
  }
}

/** The keys that a row sees, counted within its sequence. */
export function keysOf(job: HostJob, row: HostRow): number[] {
  const keys: number[] = [];
  for (let j = row.first; j < row.end; j++) {
    if (job.maskBytes === 0 || job.keyMask[row.batch * job.keyTime + row.keyBegin + j] !== 0) keys.push(j);
  }
  return keys;
}

/** Σ x·y over `width` elements. */
export function dot(x: TypedArray, xAt: number, y: TypedArray, yAt: number, width: number): number {
  let sum = 0;
  for (let c = 0; c < width; c++) sum += x[xAt + c]! * y[yAt + c]!;
  return sum;
}

/** y += factor · x, over `width` elements. */
export function addScaled(
  y: TypedArray,
  yAt: number,
  x: TypedArray,
  xAt: number,
  width: number,
  factor: number,
): void {
  for (let c = 0; c < width; c++) y[yAt + c]! += factor * x[xAt + c]!;
}

/** Scores of a row against its keys. */
export function scoresOf(job: HostJob, row: HostRow, keys: readonly number[]): number[] {
  const q = rowAt(job.strides.q, row.batch, row.token, row.head);
  const bias = row.batch * job.biasBatch + row.head * job.biasHead + row.token * job.biasRow + row.keyBegin;
  return keys.map((j) => {
    const k = rowAt(job.strides.k, row.slot, row.keyBegin + j, row.keyHead);
    const score = job.scale * dot(job.q, q, job.k, k, job.keyWidth);
    return job.hasBias === 0 ? score : score + job.bias[bias + j]!;
  });
}
