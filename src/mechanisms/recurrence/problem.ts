/** What every kernel of the recurrence is told about its job: sizes, where rows lie, which rows make a sequence. */
import type { Device, Slice } from "../../device/device.ts";
import { ShapeError } from "../../errors.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/**
 * How the old state shrinks before a token is written: not at all, by `g [HV]`, by `g [B,T,HV]`, or by
 * `g [B,T,HV,K]`, every entry a natural-log decay <= 0.
 */
export type Decay = "none" | "head" | "scalar" | "key";

/** The number by which kernels know a decay. */
export const decayCodes: Readonly<Record<Decay, number>> = { none: 0, head: 1, scalar: 2, key: 3 };

/**
 * An operand with a time axis: token t of batch row b begins `(b·T + t)·stride` elements behind the slice's offset and
 * its heads lie one behind another. A stride wider than the heads addresses a part of a fused tensor without a copy.
 */
export interface Rows {
  readonly slice: Slice;
  readonly stride: number;
}

/** The axes of one job. Value head j reads key head `floor(j / (valueHeads / heads))`. */
export interface Sizes {
  readonly batch: number;
  readonly time: number;
  readonly heads: number;
  readonly valueHeads: number;
  readonly keyWidth: number;
  readonly valueWidth: number;
}

/** Sequences laid one after another in a batch of 1: sequence n owns the tokens from entry n to entry n + 1. */
export interface Packed {
  /** int32, `count + 1` ascending entries from 0 to T. */
  readonly cuSeqlens: Slice;
  readonly count: number;
}

/** How many states a job carries: one per packed sequence, or one per batch row. */
export function sequenceCount(sizes: Sizes, packed: Packed | undefined): number {
  return packed === undefined ? sizes.batch : packed.count;
}

/** First row and one past the last of every sequence, rows counted over batch and time. */
export function sequenceRanges(
  batch: number,
  time: number,
  cuSeqlens: TypedArray | undefined,
  count: number,
): readonly (readonly [begin: number, end: number])[] {
  if (cuSeqlens === undefined) return Array.from({ length: batch }, (_, b) => [b * time, (b + 1) * time]);
  return Array.from({ length: count }, (_, n) => [cuSeqlens[n]!, cuSeqlens[n + 1]!]);
}

/** Throws a ShapeError where the axes of a job cannot belong together. */
export function checkSizes(who: string, sizes: Sizes, packed: Packed | undefined): void {
  const { batch, heads, valueHeads } = sizes;
  if (heads < 1 || valueHeads < 1 || valueHeads % heads !== 0)
    throw new ShapeError(
      `[${who}] value heads do not group over key heads: expected HV a multiple of H, got HV ${valueHeads}, H ${heads}`,
      "Value head j reads key head floor(j / (HV/H)); repeat or drop heads until it divides.",
    );
  if (packed !== undefined && batch !== 1)
    throw new ShapeError(
      `[${who}] packed sequences share one batch row: expected B 1, got B ${batch}`,
      "Lay the sequences one after another along T.",
    );
}

/** States of heads walked side by side stay within this much of the second cache. */
export const sideBySideBytes = 2 ** 18;

/**
 * How many neighbours a unit walks side by side: their rows share pages and prefetched lines. A divisor of those of one
 * sequence that leaves every thread as much to do as the others. Never changes a bit.
 */
export function sideBySide(
  device: Device,
  sequences: number,
  perSequence: number,
  stateBytes: number,
): number {
  const { threads } = device.info();
  for (let count = Math.min(8, perSequence, Math.floor(sideBySideBytes / stateBytes)); count > 1; count--) {
    const units = (sequences * perSequence) / count;
    if (perSequence % count === 0 && (units % threads === 0 || units >= 4 * threads)) return count;
  }
  return 1;
}
