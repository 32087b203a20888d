/** Attention over separate sets of keys, joined as if all had been one set: each part counts by exp(its log-sum-exp). */
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { joinBackwardHost, joinHost, mergeHost } from "./host-merge.ts";

/** Parts of one stack `[P,rows,V]`, such as rounds of hashing. */
export const mergeForward: Kernel = { key: "attention.merge.forward", host: mergeHost };
/** Two parts of their own, such as a window and what lies before it. */
export const joinForward: Kernel = { key: "attention.join.forward", host: joinHost };
/** Its gradients. */
export const joinBackward: Kernel = { key: "attention.join.backward", host: joinBackwardHost };

/** Rows of one unit. */
const unitRows = 64;

/** Sizes of a join: one row is one query of one head. */
export interface MergeSizes {
  readonly rows: number;
  readonly valueWidth: number;
  /** Parts of a stack; two where they are given one by one. */
  readonly parts: number;
}

/** A stack whose rows come head after head, `[P,B,H,T,V]`, is merged to `[B,T,H,V]`; elsewhere rows keep their order. */
export interface StackSizes extends MergeSizes {
  readonly heads?: number;
  readonly time?: number;
}

/** Outputs `[rows,V]` with their log-sum-exp `[rows]`; a stack has one more axis in front. */
export interface Part {
  readonly output: Slice;
  readonly lse: Slice;
}

function cost({ rows, valueWidth, parts }: MergeSizes): Pick<Dispatch, "units" | "work" | "scratchBytes"> {
  return {
    units: Math.ceil(rows / unitRows),
    work: 2 * rows * valueWidth * parts,
    scratchBytes: 64 + 4 * unitRows * (parts + 1),
  };
}

/**
 * O = Σ_n w_n O_n and lse = log Σ_n exp(lse_n), w_n = exp(lse_n − lse), over a stack of parts.
 *
 * A part whose lse is −Infinity counts for nothing, whatever its outputs hold; where all are, the row is zeros with lse
 * −Infinity. Costs 2·P·rows·V flops.
 */
export function attentionMerge(sizes: StackSizes, stack: Part, merged: Part): Dispatch {
  const { rows, valueWidth, parts, heads = 1, time = rows } = sizes;
  return {
    kernel: mergeForward,
    buffers: [stack.output, stack.lse, merged.output, merged.lse],
    ints: [rows, valueWidth, parts, heads, time],
    floats: [],
    ...cost(sizes),
  };
}

/** The same for two parts that lie anywhere. */
export function attentionJoin(
  sizes: Omit<MergeSizes, "parts">,
  first: Part,
  second: Part,
  joined: Part,
): Dispatch {
  return {
    kernel: joinForward,
    buffers: [first.output, first.lse, second.output, second.lse, joined.output, joined.lse],
    ints: [sizes.rows, sizes.valueWidth],
    floats: [],
    ...cost({ ...sizes, parts: 2 }),
  };
}

/** Gradients of a joined output and, where it is used on, of its lse. */
export interface MergeCotangent {
  readonly output: Slice;
  readonly lse?: Slice | undefined;
}

/** dO_n = w_n dO and dLse_n = w_n (dO·(O_n − O) + dLse) of the two parts of a join. */
export function attentionJoinBackward(
  sizes: Omit<MergeSizes, "parts">,
  parts: readonly [Part, Part],
  joined: Part,
  cotangent: MergeCotangent,
  gradients: readonly [Part, Part],
): Dispatch {
  const { output, lse } = cotangent;
  const slices = (...pairs: readonly Part[]): Slice[] => pairs.flatMap((pair) => [pair.output, pair.lse]);
  return {
    kernel: joinBackward,
    buffers: [...slices(...parts, joined), output, lse ?? output, ...slices(...gradients)],
    ints: [sizes.rows, sizes.valueWidth, Number(lse !== undefined)],
    floats: [],
    ...cost({ ...sizes, parts: 2 }),
  };
}
