/** The window as decoding keeps it: the last tokens of every sequence in a ring, sums over all before them beside it. */
import { full, type Tensor, tensor } from "../../autograd/tensor.ts";
import { add, multiply } from "../../ops/arithmetic/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { slice } from "../../ops/split/index.ts";
import { attentionOfNewest, entriesOf, writeCache } from "../attention/cache.ts";
import { takeSlots } from "../recurrence/slab.ts";
import { stepOn } from "../recurrence/step.ts";
import { farOf, type Join, join, sumsRule, withOnes } from "./join.ts";
import type { Maps } from "./maps.ts";

/** Token t of a sequence lies at place t mod window: `keys`, `values [slots,window,HKV,·]`, `sums [slots,HQ,F,V+1]`. */
export interface Ring {
  readonly keys: Tensor;
  readonly values: Tensor;
  readonly sums: Tensor;
}

/** The rows of a call: their slots, and how many tokens each has seen. */
export interface RingRows {
  /** int32 `[B]` */
  readonly slots: Tensor;
  readonly slotList: readonly number[];
  readonly seen: readonly number[];
}

const integers = (like: Tensor, list: readonly number[]): Tensor =>
  tensor(like.device, list, [list.length], { dtype: "int32" });

/** int32: places of tokens `first(b)` to `first(b) + count − 1` of every row. */
function entriesFor(ring: Ring, rows: RingRows, first: (seen: number) => number, count: number): Tensor {
  const window = ring.keys.shape[1]!;
  const list = rows.seen.flatMap((seen, b) =>
    Array.from({ length: count }, (_, i) => rows.slotList[b]! * window + ((first(seen) + i) % window)),
  );
  return integers(ring.keys, list);
}

/** The last `count` tokens of every row in their order, `[B,count,HKV,·]`. */
export function recent(
  ring: Ring,
  rows: RingRows,
  count: number,
): { readonly keys: Tensor; readonly values: Tensor } {
  const entries = entriesFor(ring, rows, (seen) => seen - count, count);
  const take = (slab: Tensor): Tensor =>
    reshape(takeSlots(entriesOf(slab), entries), [rows.seen.length, count, ...slab.shape.slice(2)]);
  return { keys: take(ring.keys), values: take(ring.values) };
}

/** Writes the last tokens of a call `[B,T,HKV,·]` that the window still holds. */
export function keepRecent(ring: Ring, rows: RingRows, k: Tensor, v: Tensor): void {
  const T = k.shape[1]!;
  const kept = Math.min(T, ring.keys.shape[1]!);
  if (kept === 0) return;
  const entries = entriesFor(ring, rows, (seen) => seen + T - kept, kept);
  writeCache(ring.keys, entries, slice(k, 1, T - kept));
  writeCache(ring.values, entries, slice(v, 1, T - kept));
}

/** One token of every row. */
export interface StepInputs {
  /** `[B,1,HQ,K]` */
  readonly q: Tensor;
  /** `[B,1,HKV,K]` */
  readonly k: Tensor;
  /** `[B,1,HKV,V]` */
  readonly v: Tensor;
}

/**
 * One token of every row → `[B,1,HQ,V]`: the token that leaves the window enters the sums, the new one takes its place. No
 * gradients. Costs the window and the sums once, however long the sequence.
 */
export function stepWindow(
  ring: Ring,
  rows: RingRows,
  { q, k, v }: StepInputs,
  maps: Maps,
  how: Join,
  scale?: number,
): Tensor {
  const window = ring.keys.shape[1]!;
  const [B, , HQ] = q.shape as [number, number, number];
  const slab = { state: ring.sums };
  const phi = { q: maps.mapQuery(q) };
  if (window === 0) {
    const own = { ...phi, k: maps.mapKey(k), v: withOnes(v, HQ) };
    return join(undefined, farOf(stepOn(sumsRule, slab, rows.slots, own)), how);
  }
  const entries = entriesFor(ring, rows, (seen) => seen, 1);
  const leaving = (x: Tensor): Tensor =>
    reshape(takeSlots(entriesOf(x), entries), [B, 1, ...x.shape.slice(2)]);
  const mapped = present(maps.mapKey(leaving(ring.keys)), rows, window);
  const old = { ...phi, k: mapped, v: withOnes(leaving(ring.values), HQ) };
  const sums = stepOn(sumsRule, slab, rows.slots, old);
  writeCache(ring.keys, entries, k);
  writeCache(ring.values, entries, v);
  const lengths = rows.seen.map((seen) => Math.min(seen + 1, window));
  const longest = lengths.reduce((a, b) => Math.max(a, b), 0);
  const view = { slots: rows.slots, lengths: integers(q, lengths), longest };
  const near = attentionOfNewest(q, ring, view, scale === undefined ? {} : { scale });
  return join(near, farOf(sums), how);
}

/** Zeros for rows whose window is not full yet: nothing leaves it. */
function present(mapped: Tensor, { seen }: RingRows, window: number): Tensor {
  if (seen.every((count) => count >= window)) return mapped;
  const there = seen.map((count) => Number(count >= window));
  return multiply(mapped, tensor(mapped.device, there, [seen.length, 1, 1, 1], { dtype: mapped.dtype }));
}

/** Sums `[B,HQ,F,V+1]` with one more token of every row in them: `k [B,1,HKV,K]`, `v [B,1,HKV,V]`. */
export function withToken(sums: Tensor, k: Tensor, v: Tensor, maps: Maps): Tensor {
  const [B, HQ, F, columns] = sums.shape as [number, number, number, number];
  const mapped = reshape(maps.mapKey(k), [B, HQ, F, 1]);
  return add(sums, multiply(mapped, reshape(withOnes(v, HQ), [B, HQ, 1, columns])));
}

/** A ring of nothing for some sequences. */
export function emptyRing(
  like: Tensor,
  sizes: { readonly slots: number; readonly window: number; readonly K: number; readonly V: number } & {
    readonly HQ: number;
    readonly HKV: number;
    readonly F: number;
  },
): Ring {
  const { slots, window, HQ, HKV, K, V, F } = sizes;
  const zeros = (...shape: number[]): Tensor => full(like.device, shape, 0, { dtype: like.dtype });
  return {
    keys: zeros(slots, window, HKV, K),
    values: zeros(slots, window, HKV, V),
    sums: zeros(slots, HQ, F, V + 1),
  };
}
