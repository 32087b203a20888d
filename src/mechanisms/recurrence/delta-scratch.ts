/** Scratch bytes of the delta kernels; each function mirrors the layout its kernel makes. */
import { ceilTo } from "./delta-job.ts";
import type { Sizes } from "./problem.ts";

/** Bytes for the words at the head of a scratch memory and the rounding between its parts. */
const headBytes = 1024;
/** Tokens of a tile in the token-after-token kernels. */
const tile = 32;

/** Floats of a pair's slot. */
const pair = 24;

/** Token after token: a tile, and what each of `together` units carries with a state of `columns` columns. */
export function recurrentScratch(sizes: Sizes, columns: number, together: number): number {
  const stride = ceilTo(sizes.keyWidth, 4);
  const values = ceilTo(columns, 16);
  const shared = (16 + values + 2) * tile + pair * (tile / 2 + 1) + 2 * stride + 4 * stride * tile;
  const carried = ceilTo(4 * values + pair + 3 * stride, 16) + sizes.keyWidth * values;
  return headBytes + 4 * (shared + together * carried);
}

/** One token: its rows and a panel of the state. */
export function stepScratch({ keyWidth }: Sizes): number {
  return headBytes + 4 * (6 * ceilTo(keyWidth, 4) + 16 * keyWidth);
}

/** What `layOutChunk` takes. */
export function chunkFloats(sizes: Sizes, chunk: number, perKey: boolean): number {
  const stride = ceilTo(sizes.keyWidth, 4);
  const span = ceilTo(chunk, 4);
  const rows = stride * span;
  return 4 * rows + 2 * span * span + 3 * span + stride + Math.max(stride, span) + (perKey ? 7 * rows : 0);
}

/** Chunk by chunk, and all at once. */
export function chunkwiseScratch(sizes: Sizes, columns: number, chunk: number, perKey: boolean): number {
  const panels = 5 * 16 * chunk + ceilTo(sizes.keyWidth, 4) * ceilTo(columns, 16);
  return headBytes + 4 * (chunkFloats(sizes, chunk, perKey) + panels);
}

/** n floats in an odd number of cache lines. */
function oddLines(n: number): number {
  return 16 * (Math.ceil(n / 16) | 1);
}

/** The backward pass: a chunk, its gradients, and the states of one segment. */
export function backwardScratch(sizes: Sizes, chunk: number, segment: number, perKey: boolean): number {
  const { keyWidth, valueWidth } = sizes;
  const wide = oddLines(valueWidth);
  const keyRow = oddLines(keyWidth);
  const stride = ceilTo(keyWidth, 4);
  const span = ceilTo(chunk, 4);
  const columns = ceilTo(valueWidth, 16);
  const values = 7 * span * wide + columns * (keyRow + span) + stride * wide;
  const keys = 3 * span * keyRow + 3 * span * stride + stride;
  const states = segment * wide + Math.ceil(segment / chunk) * stride * wide;
  return (
    headBytes + 4 * (chunkFloats(sizes, chunk, perKey) + values + keys + states + 3 * span * span + span)
  );
}
