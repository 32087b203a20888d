/** Dispatches of the additive recurrence forward: S <- decay S + k vᵀ, o = scale Sᵀq, with or without a normaliser. */
import type { Device, Kernel, Slice } from "../../device/device.ts";
import { UnsupportedError } from "../../errors.ts";
import type { Pointwise } from "../feature-maps/pointwise.ts";
import { addFlags, addForwardHost, addStepHost, mapShift } from "./add-host.ts";
import type { Decay, Packed, Rows, Sizes } from "./problem.ts";
import { checkSizes, decayCodes, sequenceCount, sideBySide } from "./problem.ts";

/** Chunk by chunk: scores inside a chunk, the state between chunks. */
export const addChunkwiseKernel: Kernel = { key: "recurrence.addChunkwise.forward", host: addForwardHost };
/** Token after token. */
export const addRecurrentKernel: Kernel = { key: "recurrence.addRecurrent.forward", host: addForwardHost };
/** Every pair of tokens on its own. */
export const addParallelKernel: Kernel = { key: "recurrence.addParallel.forward", host: addForwardHost };
/** One token for many rows of a slab of states. */
export const addStepKernel: Kernel = { key: "recurrence.addStep.forward", host: addStepHost };

const forms = {
  chunkwise: addChunkwiseKernel,
  recurrent: addRecurrentKernel,
  parallel: addParallelKernel,
} as const;

/** Which of the forward kernels computes; all agree within float32. */
export type AddForm = keyof typeof forms;

/** Chunk length where none is asked for: the fastest measured for widths of 32 to 128, or close to it, on every tier. */
export const defaultChunk = 16;

/** The choices of one job of the additive recurrence. */
export interface AddRule {
  readonly decay: Decay;
  /** Whether z <- decay z + k divides what is read: o = scale Sᵀq / (scale z·q + eps), 0 where that divides by 0. */
  readonly normalize: boolean;
  readonly scale: number;
  readonly eps: number;
  /** What q and k pass through first, with gradients by what went in; rows as they are where absent. Not in the parallel form. */
  readonly map?: Pointwise | undefined;
}

/** What goes in. Gates are rows for scalar and key decays, `[HV]` (its stride unread) for a decay fixed per head. */
export interface AddOperands {
  readonly q: Rows;
  readonly k: Rows;
  readonly v: Rows;
  readonly g?: Rows | undefined;
  /** `[N, HV, K, V]` and `[N, HV, K]`, without gaps; zeros where absent. */
  readonly initialState?: Slice | undefined;
  readonly initialNormalizer?: Slice | undefined;
}

/** What comes out; states only where they are wanted. */
export interface AddResults {
  readonly o: Rows;
  readonly finalState?: Slice | undefined;
  readonly finalNormalizer?: Slice | undefined;
}

/** How a job is cut. */
export interface AddOptions {
  readonly packed?: Packed | undefined;
  /** Rows of a chunk, any number >= 1; key decays work in chunks of at most 16. */
  readonly chunk?: number | undefined;
}

/** The rule and what is there as one number. */
export function addFlagsOf(rule: AddRule, there: Partial<Record<keyof typeof addFlags, unknown>>): number {
  let flags = decayCodes[rule.decay] | (rule.normalize ? addFlags.normalize : 0);
  flags |= (rule.map?.code ?? 0) << mapShift;
  for (const [name, bit] of Object.entries(addFlags)) {
    const value = there[name as keyof typeof addFlags];
    if (value !== undefined && value !== false) flags |= bit;
  }
  return flags;
}

/**
 * Value columns a unit works on: all of them, or blocks of whole register tiles where there are few value heads. The
 * scores are computed again for every block, so only what would leave threads idle is cut. Never changes a bit.
 */
function columnsPerUnit(device: Device, heads: number, valueWidth: number): number {
  const { threads } = device.info();
  if (threads === 1 || heads % threads === 0 || heads >= 4 * threads) return valueWidth;
  const blocks = Math.ceil((2 * threads) / heads);
  return Math.max(16, Math.ceil(valueWidth / blocks / 16) * 16);
}

const padded = (n: number): number => (n + 3) & ~3;
const padded16 = (n: number): number => (n + 15) & ~15;

/** Floats of the tables that a chunk's decays fill. */
export function decayTableFloats(decay: Decay, keyWidth: number, chunk: number): number {
  const line = padded(chunk);
  const keys = padded16(keyWidth);
  if (decay === "key") return (3 * chunk + 1) * keys + line + 2 * keys;
  return 3 * line + chunk * line + 2 * keys;
}

/** The chunk length in effect. */
export function chunkOf(decay: Decay, chunk: number | undefined, fallback: number = defaultChunk): number {
  const wished = Math.max(1, chunk ?? fallback);
  return decay === "key" ? Math.min(wished, 16) : wished;
}

/** Bytes of a unit's memory, as the kernels lay it out: records, what is shared, what each of them has alone. */
function forwardScratch(
  decay: Decay,
  keyWidth: number,
  columns: number,
  chunk: number,
  count: number,
): number {
  const [line, keys, values] = [padded(chunk), padded16(keyWidth), padded(columns)];
  const tables = decayTableFloats(decay, keyWidth, chunk);
  const shared = values + chunk * (4 * keys + line + 8) + keyWidth * line + 2 * line + tables;
  const own = (keyWidth + chunk) * values + keys + (decay === "head" ? tables : 0);
  return 512 * count + 4 * (shared + count * own);
}

/**
 * Runs the causal forward of the additive recurrence.
 *
 * S_t = exp(g_t) ∘ S_{t−1} + k_t v_tᵀ, z_t likewise with k_t, o_t as `AddRule` says; S `[N, HV, K, V]`.
 *
 * @param form chunkwise (fast for many tokens), recurrent, or parallel (T² work, for tests and analysis).
 * @throws ShapeError where heads do not group or packed sequences share a batch; UnsupportedError for a map in the
 *   parallel form.
 * Cost: chunkwise B·T·HV·(2·K·V + C·(K + V)/2) multiply-adds. Bits do not depend on the number of threads.
 */
export function addForward(
  device: Device,
  form: AddForm,
  rule: AddRule,
  sizes: Sizes,
  operands: AddOperands,
  results: AddResults,
  options: AddOptions = {},
): void {
  checkSizes("recurrence", sizes, options.packed);
  const { q, k, v, g, initialState, initialNormalizer } = operands;
  const { o, finalState, finalNormalizer } = results;
  const { packed } = options;
  if (form === "parallel" && rule.map !== undefined) throw mapsPairs();
  const sequences = sequenceCount(sizes, packed);
  const { time, heads, valueHeads, keyWidth, valueWidth } = sizes;
  const chunk = form === "chunkwise" ? chunkOf(rule.decay, options.chunk) : 1;
  const columns = columnsPerUnit(device, sequences * valueHeads, valueWidth);
  const perSequence = valueHeads * Math.ceil(valueWidth / columns);
  const stateBytes = 4 * keyWidth * padded(columns);
  const together = form === "chunkwise" ? sideBySide(device, sequences, perSequence, stateBytes) : 1;
  const none = q.slice;
  const tokens = sizes.batch * time * valueHeads;
  device.run({
    kernel: forms[form],
    buffers: [
      ...[q.slice, k.slice, v.slice, g?.slice ?? none, initialState ?? none, initialNormalizer ?? none],
      ...[packed?.cuSeqlens ?? none, o.slice, finalState ?? none, finalNormalizer ?? none],
    ],
    ints: [
      addFlagsOf(rule, { initialState, initialNormalizer, finalState, finalNormalizer, packed }),
      ...[sequences, time, heads, valueHeads, keyWidth, valueWidth],
      ...[q.stride, k.stride, v.stride, g?.stride ?? 0, o.stride, chunk, columns, together],
    ],
    floats: [rule.scale, rule.eps],
    units: (sequences * perSequence) / together,
    work: tokens * (form === "parallel" ? time * (keyWidth + valueWidth) : 2 * keyWidth * valueWidth),
    scratchBytes: forwardScratch(rule.decay, keyWidth, columns, chunk, together),
  });
}

function mapsPairs(): UnsupportedError {
  return new UnsupportedError(
    "[recurrence.parallel] would map a key again for every query: expected no map, got one",
    "Map queries and keys before the call.",
  );
}

/** Slots of a slab of carried states, one per row of a step. */
export interface AddSlots {
  /** int32 `[rows]`: different slots, one for every row. */
  readonly slots: Slice;
  /** `[slots, HV, K, V]` and, with a normaliser, `[slots, HV, K]`, changed in place. */
  readonly states: Slice;
  readonly normalizers?: Slice | undefined;
}

/**
 * One token for `sizes.batch` rows (`sizes.time` is not looked at), each on its own slot of a slab of states.
 *
 * Cost: rows·HV·2·K·V multiply-adds and the bytes of the slots once; nothing is allocated.
 */
export function addStep(
  device: Device,
  rule: AddRule,
  sizes: Sizes,
  operands: Omit<AddOperands, "initialState" | "initialNormalizer">,
  slots: AddSlots,
  o: Rows,
): void {
  checkSizes("recurrence", sizes, undefined);
  const { q, k, v, g } = operands;
  const { batch, heads, valueHeads, keyWidth, valueWidth } = sizes;
  device.run({
    kernel: addStepKernel,
    buffers: [
      ...[q.slice, k.slice, v.slice, g?.slice ?? q.slice, slots.slots, slots.states],
      ...[slots.normalizers ?? slots.states, o.slice],
    ],
    ints: [
      ...[addFlagsOf(rule, {}), batch, heads, valueHeads, keyWidth, valueWidth],
      ...[q.stride, k.stride, v.stride, g?.stride ?? 0, o.stride],
    ],
    floats: [rule.scale, rule.eps],
    units: batch * valueHeads,
    work: 2 * batch * valueHeads * keyWidth * valueWidth,
    scratchBytes: 16 * padded(keyWidth),
  });
}
