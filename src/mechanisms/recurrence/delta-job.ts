/** The argument blocks of the delta kernels: one order of operands and ints for all forms and both passes. */
import type { Slice } from "../../device/device.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import type { Decay, Packed, Rows, Sizes } from "./problem.ts";
import { checkSizes, decayCodes, sequenceCount } from "./problem.ts";

/** Which state the correction `v − Sᵀk` and the output read; the delta family reads decayed and last. */
export interface DeltaOrder {
  /** The correction reads the state before the token's decay (Comba, DPLR) instead of after it. */
  readonly undecayedCorrection: boolean;
  /** The output reads the state before the token's decay and write (RWKV-6) instead of after them. */
  readonly readFirst: boolean;
}

/** The order of the delta rule, Gated DeltaNet and Kimi Delta Attention. */
export const deltaOrder: DeltaOrder = { undecayedCorrection: false, readFirst: false };

/** What goes into one job of the delta family. */
export interface DeltaJob {
  readonly sizes: Sizes;
  readonly decay: Decay;
  /** Multiplies q·k. */
  readonly scale: number;
  readonly q: Rows;
  /** The key that retrieves what is corrected. */
  readonly eraseKey: Rows;
  /** The key that is written; the erase key where it is undefined. */
  readonly writeKey?: Rows | undefined;
  readonly v: Rows;
  readonly beta: Rows;
  /** Natural-log decays; undefined with decay `none`. With `head` its stride is not used. */
  readonly g?: Rows | undefined;
  /** [N,HV,K,V]; zeros where it is undefined. */
  readonly initialState?: Slice | undefined;
  readonly packed?: Packed | undefined;
  readonly order?: DeltaOrder | undefined;
  /** Tokens worked at once by the chunkwise form and the backward pass; the measured default where it is undefined. */
  readonly chunk?: number | undefined;
}

/** Bits of the `flags` int. The kernels have the same in `delta-job.as.ts`. */
export const flagBits = {
  initial: 1,
  final: 2,
  packed: 4,
  kept: 8,
  undecayedCorrection: 16,
  readFirst: 32,
  oneKey: 64,
  gateGradient: 128,
  initialGradient: 256,
} as const;

/** Index of each int that all kernels of the family share. */
export const intNames = [
  "sequences",
  "time",
  "heads",
  "valueHeads",
  "keyWidth",
  "valueWidth",
  "decay",
  "flags",
  "columns",
  "chunk",
  "segment",
  "qRow",
  "eraseRow",
  "writeRow",
  "vRow",
  "betaRow",
  "gRow",
] as const;

/** n rounded up to a multiple. */
export function ceilTo(n: number, multiple: number): number {
  return Math.ceil(n / multiple) * multiple;
}

/** How a job is cut in time. */
export interface DeltaPlan {
  /** Tokens of a chunk. */
  readonly chunk: number;
  /** Tokens between two kept states, a multiple of `chunk`. */
  readonly segment: number;
  /** Floats of the kept states, [slots,HV,K,V]. */
  readonly keptLength: number;
}

const defaultChunk = 16;
/** Longest chunk: with decays per key channel a chunk is one block of running products. */
const longestChunk: Readonly<Record<Decay, number>> = { none: 256, head: 256, scalar: 256, key: 16 };

/** The chunk length in use, the length of a segment (⌈√(T/C)⌉ chunks) and the room for its kept states. */
export function deltaPlan(job: Pick<DeltaJob, "sizes" | "decay" | "packed" | "chunk">): DeltaPlan {
  const { batch, time, valueHeads, keyWidth, valueWidth } = job.sizes;
  const wanted = job.chunk ?? defaultChunk;
  if (!Number.isInteger(wanted) || wanted < 1)
    throw new ConfigError(`[recurrence.delta] bad chunk length: expected a whole number >= 1, got ${wanted}`);
  const chunk = Math.max(1, Math.min(wanted, longestChunk[job.decay], time));
  const chunks = Math.max(1, Math.ceil(Math.sqrt(time / chunk)));
  // Even, so that it never parts a pair of tokens that the recurrent form takes together.
  const segment = (chunks * chunk) % 2 === 0 ? chunks * chunk : (chunks + 1) * chunk;
  const slots =
    job.packed === undefined
      ? batch * Math.floor(Math.max(0, time - 1) / segment)
      : Math.floor(time / segment);
  return { chunk, segment, keptLength: slots * valueHeads * keyWidth * valueWidth };
}

/** Value columns of a unit: narrower than all where too few heads and sequences would leave threads idle. */
export function unitColumns(job: DeltaJob): number {
  const { valueHeads, valueWidth } = job.sizes;
  const panels = Math.max(1, Math.ceil(valueWidth / 16));
  const pairs = Math.max(1, sequenceCount(job.sizes, job.packed) * valueHeads);
  const blocks = Math.min(panels, Math.ceil(8 / pairs));
  return 16 * Math.ceil(panels / blocks);
}

/** Throws where the parts of a job contradict each other. */
export function checkDelta(who: string, job: DeltaJob): void {
  checkSizes(who, job.sizes, job.packed);
  const gated = job.decay !== "none";
  if (gated !== (job.g !== undefined))
    throw new ShapeError(
      `[${who}] decay and gate disagree: expected ${gated ? "a g" : "no g"} with decay "${job.decay}", got ${gated ? "none" : "one"}`,
      'Pass g with decay "head", "scalar" or "key", and leave it out with "none".',
    );
}

/** The words that every kernel shares: operands and ints, before those of its own. */
export function sharedArguments(
  job: DeltaJob,
  plan: DeltaPlan,
  columns: number,
  flags: number,
): { buffers: Slice[]; ints: number[] } {
  const { sizes, order = deltaOrder } = job;
  const nothing = job.q.slice;
  const writeKey = job.writeKey ?? job.eraseKey;
  const bits =
    flags |
    (job.initialState === undefined ? 0 : flagBits.initial) |
    (job.packed === undefined ? 0 : flagBits.packed) |
    (order.undecayedCorrection ? flagBits.undecayedCorrection : 0) |
    (order.readFirst ? flagBits.readFirst : 0);
  const gRow = job.g === undefined || job.decay === "head" ? 0 : job.g.stride;
  return {
    buffers: [
      job.q.slice,
      job.eraseKey.slice,
      writeKey.slice,
      job.v.slice,
      job.beta.slice,
      job.g?.slice ?? nothing,
      job.initialState ?? nothing,
      job.packed?.cuSeqlens ?? nothing,
    ],
    ints: [
      ...[sequenceCount(sizes, job.packed), sizes.time, sizes.heads, sizes.valueHeads],
      ...[sizes.keyWidth, sizes.valueWidth, decayCodes[job.decay], bits, columns, plan.chunk, plan.segment],
      ...[job.q.stride, job.eraseKey.stride, writeKey.stride, job.v.stride, job.beta.stride, gRow],
    ],
  };
}
