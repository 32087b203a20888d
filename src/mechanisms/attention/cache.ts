/** Attention over keys and values that are kept from call to call, in slabs of slots. */
import { empty, Tensor } from "../../autograd/tensor.ts";
import { max } from "../../ops/max/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { putSlots } from "../recurrence/slab.ts";
import { attentionDecode, decodePartials } from "./decode.ts";
import { type AttentionOptions, headRowsOf } from "./operands.ts";
import type { AttentionProblem, CacheRows } from "./problem.ts";
import { attentionForward } from "./tiled.ts";

/** Keys `[slots, capacity, HKV, K]` and values `[slots, capacity, HKV, V]`; the two may share their memory. */
export interface CacheSlabs {
  readonly keys: Tensor;
  readonly values: Tensor;
}

/** Which slots the rows of a batch read, and how much of each. */
export interface CacheView {
  /** int32 `[B]` */
  readonly slots: Tensor;
  /** int32 `[B]`: keys that each row has, its newest tokens among them. */
  readonly lengths: Tensor;
  /** The largest of the lengths. */
  readonly longest: number;
}

/** Writes tokens `[..., HKV, W]` to entries of a slab `[slots, capacity, HKV, W]`: `entries` int32, slot · capacity + place. */
export function writeCache(slab: Tensor, entries: Tensor, tokens: Tensor): void {
  putSlots(entriesOf(slab), entries, tokens);
}

/** A slab with slots and places as one axis. */
export function entriesOf(slab: Tensor): Tensor {
  const [slots, capacity, ...inner] = slab.shape as [number, number, ...number[]];
  const { storage, offset, strides } = slab.layout;
  return new Tensor({ storage, offset, strides: strides.slice(1) }, [slots * capacity, ...inner]);
}

function problemOf(
  q: Tensor,
  { keys, values }: CacheSlabs,
  keyTime: number,
  options: Pick<AttentionOptions, "window" | "scale">,
): AttentionProblem {
  const [batch, time, queryHeads, keyWidth] = q.shape as [number, number, number, number];
  const [keyHeads, valueWidth] = values.shape.slice(2) as [number, number];
  solveAxes("attention", {
    q: { shape: q.shape, axes: "B T HQ K" },
    keys: { shape: keys.shape, axes: "slots capacity HKV K" },
    values: { shape: values.shape, axes: "slots capacity HKV V" },
  });
  return {
    sizes: { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth },
    scale: options.scale ?? keyWidth ** -0.5,
    causal: true,
    window: options.window,
  };
}

/**
 * Causal attention of the newest tokens of every row to all that its slot holds, themselves included.
 *
 * `q [B,T,HQ,K]` → `[B,T,HQ,V]`: query i of row b sees the first lengths[b] − T + i + 1 entries of its slot. One token
 * runs at the speed of memory, more of them in tiles. No gradients.
 */
export function attentionOverCache(
  q: Tensor,
  slabs: CacheSlabs,
  view: CacheView,
  options: Pick<AttentionOptions, "window" | "scale"> = {},
): Tensor {
  const cache: CacheRows = { slots: view.slots.layout, lengths: view.lengths.layout };
  const problem = { ...problemOf(q, slabs, view.longest, options), cache };
  return run(q, slabs, problem);
}

/**
 * The same for one token of every row, with the log-sum-exp and the largest of its scores, `[B,1,HQ]`: for those who
 * weigh it against something else.
 */
export function attentionOfNewest(
  q: Tensor,
  slabs: CacheSlabs,
  view: CacheView,
  options: Pick<AttentionOptions, "window" | "scale"> = {},
): { readonly output: Tensor; readonly lse: Tensor; readonly rowMax: Tensor } {
  const cache: CacheRows = { slots: view.slots.layout, lengths: view.lengths.layout };
  const problem = { ...problemOf(q, slabs, view.longest, options), cache };
  const { output, lse, partials } = decode(q, slabs, problem);
  const { batch, keyTime, queryHeads, valueWidth } = problem.sizes;
  return { output, lse, rowMax: largestOf(partials, [batch, keyTime, queryHeads, valueWidth]) };
}

/** Attention of one token of every row to all keys `[B,Tk,HKV,K]`, at the speed of memory. No gradients. */
export function attentionOfOne(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: Pick<AttentionOptions, "window" | "scale"> & { readonly mask?: Tensor | undefined } = {},
): Tensor {
  const slabs = { keys: k, values: v };
  const problem = problemOf(q, slabs, k.shape[1]!, options);
  return run(q, slabs, { ...problem, keyMask: options.mask?.layout, offset: k.shape[1]! - 1 });
}

function operandsOf(q: Tensor, { keys, values }: CacheSlabs, output: Tensor) {
  return { q: headRowsOf(q), k: headRowsOf(keys), v: headRowsOf(values), output: headRowsOf(output) };
}

function run(q: Tensor, slabs: CacheSlabs, problem: AttentionProblem): Tensor {
  const { batch, time, queryHeads, valueWidth } = problem.sizes;
  if (time === 1) return decode(q, slabs, problem).output;
  const { device, dtype } = q;
  const output = empty(device, [batch, time, queryHeads, valueWidth], { dtype });
  const lse = empty(device, [batch, time, queryHeads], { dtype }).layout;
  device.run(attentionForward(problem, { ...operandsOf(q, slabs, output), lse }));
  return output;
}

function decode(
  q: Tensor,
  slabs: CacheSlabs,
  problem: AttentionProblem,
): { readonly output: Tensor; readonly lse: Tensor; readonly partials: Tensor } {
  const { batch, queryHeads, valueWidth } = problem.sizes;
  const { device, dtype } = q;
  const output = empty(device, [batch, 1, queryHeads, valueWidth], { dtype });
  const lse = empty(device, [batch, 1, queryHeads], { dtype });
  const partials = empty(device, [decodePartials(problem)], { dtype });
  const operands = { ...operandsOf(q, slabs, output), lse: lse.layout, partials: partials.layout };
  for (const dispatch of attentionDecode(problem, operands)) device.run(dispatch);
  return { output, lse, partials };
}

/** The largest score `[B,1,HQ]` out of what the blocks of keys left behind. */
function largestOf(partials: Tensor, [B, Tk, HQ, V]: readonly [number, number, number, number]): Tensor {
  const row = V + 2;
  const blocks = partials.size / (B * HQ * row);
  const strides = [blocks * HQ * row, HQ * row, row];
  const maxima = new Tensor({ ...partials.layout, strides }, [B, blocks, HQ]);
  return blocks === 1 || Tk === 0 ? maxima : max(maxima, { axes: 1, keepDims: true });
}
