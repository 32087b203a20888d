/** What every kernel of attention is told about its job: axes, where rows lie, which keys a query sees. */
import type { Slice } from "../../device/device.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import { bytesPerElement } from "../../tensor/dtype.ts";

/**
 * An operand with batch, time and head axes: token t of head h in batch row b begins `b·batch + t·token + h·head`
 * elements behind the slice's offset, so that a part of a fused tensor or of a cache needs no copy.
 */
export interface HeadRows {
  readonly slice: Slice;
  readonly batch: number;
  readonly token: number;
  readonly head: number;
}

/** The axes of one job. Query head j reads key head `floor(j / (queryHeads / keyHeads))`. */
export interface AttentionSizes {
  readonly batch: number;
  /** Queries of each batch row. */
  readonly time: number;
  /** Keys of each batch row; with a cache, the most that any row may have. */
  readonly keyTime: number;
  readonly queryHeads: number;
  readonly keyHeads: number;
  readonly keyWidth: number;
  readonly valueWidth: number;
}

/** Numbers added to the scores, `[B or 1, HQ or 1, T, Tk]`: strides in elements, 0 for an axis that is shared. */
export interface Bias {
  readonly slice: Slice;
  readonly batch: number;
  readonly head: number;
  readonly row: number;
}

/** Sequences laid one after another in a batch of 1: sequence n owns the tokens from entry n to entry n + 1. */
export interface PackedTokens {
  /** int32, `count + 1` ascending entries from 0 to T. */
  readonly cuSeqlens: Slice;
  readonly count: number;
}

/** Keys and values in a slab of slots: batch row b reads `lengths[b]` keys of slot `slots[b]`. Both int32 [B]. */
export interface CacheRows {
  readonly slots: Slice;
  readonly lengths: Slice;
}

/** Which keys count for a query, and how much. */
export interface AttentionProblem {
  readonly sizes: AttentionSizes;
  /** Multiplies q·k. */
  readonly scale: number;
  /** Query i sees keys up to i + offset; with a cache, up to i + lengths[b] − T + offset. */
  readonly causal: boolean;
  readonly offset?: number | undefined;
  /** A causal query sees its own position and the window − 1 before it. */
  readonly window?: number | undefined;
  /** uint8 or int32 `[B,Tk]`: keys whose entry is 0 are seen by nobody. */
  readonly keyMask?: Slice | undefined;
  readonly bias?: Bias | undefined;
  readonly packed?: PackedTokens | undefined;
  readonly cache?: CacheRows | undefined;
}

/** Rows that fill a tensor `[B,T,H,W]`. */
export function headRows(slice: Slice, time: number, heads: number, width: number): HeadRows {
  return { slice, batch: time * heads * width, token: heads * width, head: width };
}

/** Operands of the tiled kernels, in the order of their argument block. */
export const operandNames = [
  ...(["q", "k", "v", "keyMask", "bias", "cuSeqlens", "slots", "lengths"] as const),
  ...([
    "output",
    "lse",
    "rowMax",
    "dOutput",
    "dLse",
    "dRowMax",
    "delta",
    "dQ",
    "dK",
    "dV",
    "dBias",
    "weights",
  ] as const),
];
/** One operand of the tiled kernels. */
export type OperandName = (typeof operandNames)[number];

/** Integers of the tiled kernels, in the order of their argument block. */
export const integerNames = [
  ...(["batch", "time", "keyTime", "queryHeads", "keyHeads", "keyWidth", "valueWidth"] as const),
  ...(["causal", "offset", "window", "maskBytes", "hasBias", "biasBatch", "biasHead", "biasRow"] as const),
  ...(["dBiasBatch", "dBiasHead"] as const),
  ...(["sequences", "cached", "tileQueries", "tileKeys", "tilesPerRow", "blockKeys"] as const),
  ...(["hasRowMax", "hasDLse"] as const),
];
/** One integer of the tiled kernels. */
export type IntegerName = (typeof integerNames)[number];

/** Operands that have strides, in the order of the argument block. */
export const stridedNames = ["q", "k", "v", "output", "dOutput", "dQ", "dK", "dV"] as const;
/** One operand with strides. */
export type StridedName = (typeof stridedNames)[number];

/** Keys that a tile takes at once. Cuts the running sums, so that every job must take the same. */
export const tileKeys = 64;

/** Floats of queries and values that a tile may hold: with all that goes with them they must fit a core's cache. */
const tileFloats = 2 ** 15;
/** Tiles a job should have, for threads to share. */
const enoughTiles = 16;

/**
 * Queries of a tile, which changes no bit of a result. The more, the less often keys and values come from far memory; the
 * fewer, the better threads share: see docs/performance/attention.md.
 */
export function tileQueries({ sizes }: AttentionProblem): number {
  const { batch, time, queryHeads, keyWidth, valueWidth } = sizes;
  const fitting = 64 * Math.max(1, Math.floor(tileFloats / (keyWidth + valueWidth) / 64));
  let queries = Math.min(256, fitting);
  while (queries > 64 && batch * queryHeads * Math.ceil(time / queries) < enoughTiles) queries /= 2;
  return 64 * Math.ceil(queries / 64);
}

/** Query tiles of one head in one batch row; with packed sequences an upper bound that needs no look at them. */
export function tilesPerRow(problem: AttentionProblem): number {
  const { time } = problem.sizes;
  const queries = tileQueries(problem);
  return problem.packed === undefined
    ? Math.ceil(time / queries)
    : Math.floor(time / queries) + problem.packed.count;
}

/** The integers that say what a job is, without those of single kernels. */
export function problemIntegers(problem: AttentionProblem): Partial<Record<IntegerName, number>> {
  const { keyMask, bias, packed } = problem;
  return {
    ...problem.sizes,
    causal: Number(problem.causal),
    offset: problem.offset ?? 0,
    window: problem.window ?? 0,
    maskBytes: keyMask === undefined ? 0 : bytesPerElement(keyMask.storage.dtype),
    hasBias: Number(bias !== undefined),
    biasBatch: bias?.batch ?? 0,
    biasHead: bias?.head ?? 0,
    biasRow: bias?.row ?? 0,
    sequences: packed?.count ?? 0,
    cached: Number(problem.cache !== undefined),
    tileQueries: tileQueries(problem),
    tileKeys,
    tilesPerRow: tilesPerRow(problem),
  };
}

/** Bytes of a row of floats as the kernels pad it. */
export function paddedBytes(columns: number): number {
  return 4 * (16 * Math.ceil(columns / 16) + 16);
}

/** Scratch bytes of what every tiled kernel keeps, as `openScratch` of tile.as.ts lays it out. */
export function tileBytes(problem: AttentionProblem, strip: number, wide: number): number {
  const { keyWidth, valueWidth } = problem.sizes;
  const queries = stripBytes(problem, strip, wide, keyWidth);
  return structBytes + queries + tileKeys * wide + 4 * tileKeys * (keyWidth + valueWidth);
}

/** Scratch bytes of a matrix of so many rows with a query in each column. */
export function stripBytes(problem: AttentionProblem, strip: number, wide: number, rows: number): number {
  return Math.ceil(tileQueries(problem) / strip) * rows * wide;
}

/** Scratch bytes of one structure of a kernel. */
export const structBytes = 192;

/** Throws where the axes or choices of a job cannot belong together. */
export function checkProblem(who: string, problem: AttentionProblem): void {
  const { sizes, window, packed, cache } = problem;
  const { batch, queryHeads, keyHeads } = sizes;
  if (keyHeads < 1 || queryHeads < 1 || queryHeads % keyHeads !== 0)
    throw new ShapeError(
      `[${who}] query heads do not group over key heads: expected HQ a multiple of HKV, got HQ ${queryHeads}, HKV ${keyHeads}`,
      "Query head j reads key head floor(j / (HQ/HKV)); repeat or drop heads until it divides.",
    );
  if (window !== undefined && !(Number.isInteger(window) && window >= 1))
    throw new ConfigError(
      `[${who}] bad window: expected a whole number >= 1, got ${window}`,
      "A window of 1 is a token that sees only itself; leave it out to see everything.",
    );
  if (window !== undefined && !problem.causal)
    throw new ConfigError(
      `[${who}] a window looks back from its token: expected causal attention, got causal false`,
    );
  if (packed !== undefined && (batch !== 1 || cache !== undefined || sizes.time !== sizes.keyTime))
    throw new ShapeError(
      `[${who}] packed sequences share one batch row and have as many keys as queries: expected B 1, T = Tk and no cache, ` +
        `got B ${batch}, T ${sizes.time}, Tk ${sizes.keyTime}${cache === undefined ? "" : ", a cache"}`,
    );
}
