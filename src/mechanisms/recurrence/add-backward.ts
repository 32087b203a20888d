/** Dispatches of the additive recurrence backward: O(T) time, nothing of the size T×K×V. */
import type { Device, Kernel, Slice } from "../../device/device.ts";
import type { DType } from "../../tensor/dtype.ts";
import type { AddOperands, AddOptions, AddRule } from "./add.ts";
import { addFlagsOf, chunkOf, decayTableFloats, defaultChunk } from "./add.ts";
import { addBackwardHost } from "./add-backward-host.ts";
import { addPartsHost } from "./add-host.ts";
import type { Decay, Rows, Sizes } from "./problem.ts";
import { checkSizes, sequenceCount, sideBySide, sideBySideBytes } from "./problem.ts";

/** The backward of every causal form. */
export const addBackwardKernel: Kernel = { key: "recurrence.addChunkwise.backward", host: addBackwardHost };
/** Sums that units left apart, added in a fixed order. */
export const addPartsKernel: Kernel = { key: "recurrence.addParts.sum", host: addPartsHost };

/** With a gate's gradient every chunk copies, turns and multiplies states, which longer ones do less often. */
const gatedChunk = 32;

/** Gradients of what came out; a missing one is zero. */
export interface AddCotangents {
  readonly dOutput: Rows;
  readonly dFinalState?: Slice | undefined;
  readonly dFinalNormalizer?: Slice | undefined;
}

/** Gradients of what went in, written without being read; those left out are not computed. */
export interface AddGradients {
  readonly dq: Rows;
  readonly dk: Rows;
  readonly dv: Rows;
  /** As `g` lies: rows, or `[HV]` for a fixed decay. Costs a sixth more time: states are computed twice. */
  readonly dg?: Rows | undefined;
  readonly dInitialState?: Slice | undefined;
  readonly dInitialNormalizer?: Slice | undefined;
}

/** A total and the parts that are added to it. */
interface Parts {
  readonly rows: number;
  readonly width: number;
  readonly stride: number;
  readonly count: number;
}

/**
 * In how many parts a group of value heads is walked. The results do not depend on the number of threads, so this
 * cannot either: few units get as many parts as make four.
 */
export function groupParts(units: number, group: number): number {
  return Math.min(group, Math.max(1, Math.ceil(4 / units)));
}

/** total += the parts behind the first, in order. */
export function addParts(device: Device, total: Slice, parts: Slice, job: Parts): void {
  if (job.count === 0) return;
  device.run({
    kernel: addPartsKernel,
    buffers: [total, parts],
    ints: [job.rows, job.width, job.stride, job.count],
    floats: [],
    units: job.rows,
    work: job.rows * job.width * job.count,
    scratchBytes: 0,
  });
}

const padded = (n: number): number => (n + 3) & ~3;
const padded16 = (n: number): number => (n + 15) & ~15;

/** How the work is cut: parts of groups, key heads of a unit, value heads side by side. */
interface Cut {
  readonly parts: number;
  readonly keyHeads: number;
  readonly together: number;
}

/** A state and its gradient per value head. */
function cutOf(device: Device, sequences: number, sizes: Sizes): Cut {
  const { heads, valueHeads, keyWidth, valueWidth } = sizes;
  const group = valueHeads / heads;
  const parts = groupParts(sequences * heads, group);
  const members = Math.ceil(group / parts);
  const bytes = 8 * padded16(keyWidth) * padded(valueWidth);
  const keyHeads = parts > 1 ? 1 : sideBySide(device, sequences, heads, bytes * members);
  const together = Math.min(8, keyHeads * members, Math.floor(sideBySideBytes / bytes));
  return { parts, keyHeads, together: Math.max(1, together) };
}

/** Bytes of a unit's memory, as the kernel lays it out: records, what is shared, what each of them has alone. */
function backwardScratch(
  rule: AddRule,
  sizes: Sizes,
  chunk: number,
  keepEvery: number,
  together: number,
  gated: boolean,
): number {
  const { time, keyWidth: K, valueWidth: V } = sizes;
  const [line, keys, values] = [padded(chunk), padded16(K), padded(V)];
  const tables = decayTableFloats(rule.decay, K, chunk);
  const scores = 2 * chunk * line + (2 * K + V) * line + 8 * chunk + 3 * line;
  const shared = tables + scores + chunk * (9 * keys + 2 * values) + K * values;
  const state = (V + 1) * keys;
  const kept = gated ? (keepEvery + Math.ceil(Math.ceil(time / chunk) / keepEvery)) * state : 0;
  const perToken = rule.normalize ? 2 * padded(time) : 0;
  const own = state + K * values + keys + kept + perToken + (rule.decay === "head" ? tables : 0);
  return 512 * together + 4 * (shared + together * own);
}

/** Every how many chunks a state is kept: as many kept as computed again at a time. */
function keepEveryOf(decay: Decay, time: number, chunk: number, gated: boolean): number {
  return gated && decay !== "none" ? Math.max(1, Math.ceil(Math.sqrt(Math.ceil(time / chunk)))) : 1;
}

/** Memory for the sums of later parts: released at the end of `use`. */
function withMemory(
  device: Device,
  dtype: DType,
  lengths: readonly number[],
  use: (parts: Slice[]) => void,
): void {
  const storages = lengths.map((length) => device.allocate(dtype, length));
  use(storages.map((storage) => ({ storage, offset: 0 })));
  for (const storage of storages) device.release(storage);
}

/**
 * Gradients of the causal additive recurrence by everything that went in, given those of everything that came out.
 *
 * Without dg two scans: dq with the state on the way forward, dk and dv with R, the state's gradient, on the way back
 * (Transformers are RNNs, arXiv 2006.16236, in chunks). With dg every ⌈√(T/C)⌉-th state is kept and those
 * between are computed again; dg is summed inside a chunk plus decay·<R, S> at its border. With a normaliser the
 * denominators are computed again. dq and dk of a group of value heads are summed in a fixed order.
 * Cost: B·T·HV·(5·K·V + 3·C·(K + V)/2) multiply-adds, one K·V more with dg; extra memory a few states per thread, and
 * for grouped heads up to three more dq and dk where there would be fewer than four units.
 *
 * @throws ShapeError where heads do not group or packed sequences share a batch.
 */
export function addBackward(
  device: Device,
  rule: AddRule,
  sizes: Sizes,
  operands: AddOperands,
  cotangents: AddCotangents,
  gradients: AddGradients,
  options: AddOptions = {},
): void {
  checkSizes("recurrence", sizes, options.packed);
  const { heads, valueHeads, keyWidth, valueWidth, time } = sizes;
  const { packed } = options;
  const { dq, dk, dg } = gradients;
  const sequences = sequenceCount(sizes, packed);
  const cut = cutOf(device, sequences, sizes);
  const { parts } = cut;
  const rows = sizes.batch * time;
  const width = heads * keyWidth;
  const dgParts = rule.decay === "head" && dg !== undefined ? sequences - 1 : 0;
  const lengths = [(parts - 1) * rows * width, (parts - 1) * rows * width, dgParts * valueHeads];
  withMemory(device, dq.slice.storage.dtype, lengths, (apart) => {
    device.run({
      kernel: addBackwardKernel,
      buffers: backwardBuffers(operands, cotangents, gradients, options, apart),
      ...backwardNumbers(rule, sizes, operands, cotangents, gradients, options, cut),
      units: (sequences * heads * parts) / cut.keyHeads,
      work: 5 * rows * valueHeads * keyWidth * valueWidth,
    });
    addParts(device, dq.slice, apart[0], { rows, width, stride: dq.stride, count: parts - 1 });
    addParts(device, dk.slice, apart[1], { rows, width, stride: dk.stride, count: parts - 1 });
    if (dgParts > 0)
      addParts(device, dg!.slice, apart[2], {
        rows: 1,
        width: valueHeads,
        stride: valueHeads,
        count: dgParts,
      });
  });
}

function backwardBuffers(
  { q, k, v, g, initialState, initialNormalizer }: AddOperands,
  { dOutput, dFinalState, dFinalNormalizer }: AddCotangents,
  { dq, dk, dv, dg, dInitialState, dInitialNormalizer }: AddGradients,
  { packed }: AddOptions,
  apart: readonly Slice[],
): Slice[] {
  const none = q.slice;
  return [
    ...[q.slice, k.slice, v.slice, g?.slice ?? none, initialState ?? none, initialNormalizer ?? none],
    ...[packed?.cuSeqlens ?? none, dOutput.slice, dFinalState ?? none, dFinalNormalizer ?? none],
    ...[dq.slice, dk.slice, dv.slice, dg?.slice ?? none, dInitialState ?? none, dInitialNormalizer ?? none],
    ...apart,
  ];
}

function backwardNumbers(
  rule: AddRule,
  sizes: Sizes,
  { q, k, v, g, initialState, initialNormalizer }: AddOperands,
  { dOutput, dFinalState, dFinalNormalizer }: AddCotangents,
  { dq, dk, dv, dg, dInitialState, dInitialNormalizer }: AddGradients,
  { packed, chunk: wished }: AddOptions,
  { parts, keyHeads, together }: Cut,
): { ints: number[]; floats: number[]; scratchBytes: number } {
  const { time, heads, valueHeads, keyWidth, valueWidth } = sizes;
  const gated = rule.decay !== "none" && dg !== undefined;
  const chunk = chunkOf(rule.decay, wished, gated ? gatedChunk : defaultChunk);
  const keepEvery = keepEveryOf(rule.decay, time, chunk, gated);
  const flags = addFlagsOf(rule, {
    ...{
      initialState,
      initialNormalizer,
      finalState: dFinalState,
      finalNormalizer: dFinalNormalizer,
      packed,
    },
    ...{
      gateGradient: gated,
      initialStateGradient: dInitialState,
      initialNormalizerGradient: dInitialNormalizer,
    },
  });
  return {
    ints: [
      ...[flags, sequenceCount(sizes, packed), time, heads, valueHeads, keyWidth, valueWidth],
      ...[q.stride, k.stride, v.stride, g?.stride ?? 0, dOutput.stride],
      ...[dq.stride, dk.stride, dv.stride, dg?.stride ?? 0],
      ...[chunk, parts, keepEvery, keyHeads, together],
    ],
    floats: [rule.scale, rule.eps],
    scratchBytes: backwardScratch(rule, sizes, chunk, keepEvery, together, gated),
  };
}
