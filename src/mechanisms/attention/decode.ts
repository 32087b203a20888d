/** One query for each batch row over its cache: what generating a token costs, at the speed of memory. */
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { ShapeError } from "../../errors.ts";
import { bytesPerElement } from "../../tensor/dtype.ts";
import { decodeHost, decodeJoinHost } from "./host-decode.ts";
import { type AttentionProblem, checkProblem, type HeadRows } from "./problem.ts";

/** Maxima, sums and unnormalised outputs of blocks of keys. */
export const decodeForward: Kernel = { key: "attention.decode.forward", host: decodeHost };
/** The blocks of a row joined. */
export const decodeJoinForward: Kernel = { key: "attention.decodeJoin.forward", host: decodeJoinHost };

/** Elements of keys and values that one unit reads: every change from keys to values breaks what memory foresees. */
const blockElements = 2 ** 19;
const mostBlockKeys = 1024;

/** Keys that one unit reads: also the cut of the sums, which no neighbour of a row and no thread may decide. */
function blockKeysOf({ keyHeads, keyWidth, valueWidth }: AttentionProblem["sizes"]): number {
  const keys = blockElements / (keyHeads * (keyWidth + valueWidth));
  return Math.max(8, Math.min(mostBlockKeys, 8 * Math.floor(keys / 8)));
}

/** What decoding reads and writes. */
export interface DecodeOperands {
  /** `[B,1,HQ,K]` */
  readonly q: HeadRows;
  /** `[B,Tk,HKV,K]`, or a slab of slots with a cache */
  readonly k: HeadRows;
  /** `[B,Tk,HKV,V]`, or a slab of slots with a cache */
  readonly v: HeadRows;
  /** `[B,1,HQ,V]` */
  readonly output: HeadRows;
  /** `[B,1,HQ]` */
  readonly lse: Slice;
  /** Room for `decodePartials` elements. */
  readonly partials: Slice;
}

/** Elements that the first pass leaves for the second. */
export function decodePartials({ sizes }: AttentionProblem): number {
  const { batch, keyTime, queryHeads, valueWidth } = sizes;
  return batch * Math.ceil(keyTime / blockKeysOf(sizes)) * queryHeads * (valueWidth + 2);
}

/**
 * Attention of the newest token of each batch row to all keys that its row holds, with its log-sum-exp: what
 * `attentionForward` gives for T = 1, in an order of its own. Keys and values are read once, in the order of memory.
 *
 * The query stands at the last key, so causal or not is the same; a window and a key mask count, a bias does not exist.
 * Costs 4·Tk·HKV·(K + V) bytes of reading for each row.
 *
 * @throws ShapeError for more than one query in a row, packed sequences or a bias.
 */
export function attentionDecode(problem: AttentionProblem, operands: DecodeOperands): readonly Dispatch[] {
  checkProblem("attention.decode.forward", problem);
  const { sizes, keyMask, cache, window } = problem;
  const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = sizes;
  if (time !== 1 || problem.packed !== undefined || problem.bias !== undefined)
    throw new ShapeError(
      `[attention.decode.forward] decoding takes one query a row: expected T 1 without packing and bias, got T ${time}`,
      "Use attentionForward for longer queries.",
    );
  const { q, k, v, output, lse, partials } = operands;
  const unused = q.slice;
  const blockKeys = blockKeysOf(sizes);
  const blocks = Math.ceil(keyTime / blockKeys);
  const common = {
    buffers: [
      ...[q.slice, k.slice, v.slice, keyMask ?? unused, cache?.slots ?? unused, cache?.lengths ?? unused],
      ...[partials, output.slice, lse],
    ],
    ints: [
      ...[keyTime, queryHeads, keyHeads, keyWidth, valueWidth, window ?? 0],
      keyMask === undefined ? 0 : bytesPerElement(keyMask.storage.dtype),
      ...[Number(cache !== undefined), blockKeys, blocks, q.batch, q.head],
      ...[k.batch, k.token, k.head, v.batch, v.token, v.head, output.batch, output.head, batch],
    ],
    floats: [problem.scale],
  };
  const moved = batch * keyTime * keyHeads * (keyWidth + valueWidth);
  const scratchBytes = 64 + 4 * queryHeads * (keyWidth + blockKeys + 4);
  const partialElements = batch * queryHeads * blocks * valueWidth;
  return [
    { kernel: decodeForward, ...common, units: batch * blocks, work: moved, scratchBytes },
    {
      kernel: decodeJoinForward,
      ...common,
      units: batch * queryHeads,
      work: partialElements,
      scratchBytes: 0,
    },
  ];
}
