/** Attention over keys and values that are kept from call to call, in slabs of slots. */
import { empty, Tensor } from "../../autograd/tensor.ts";
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

function run(q: Tensor, { keys, values }: CacheSlabs, problem: AttentionProblem): Tensor {
  const { batch, time, queryHeads, valueWidth } = problem.sizes;
  const { device, dtype } = q;
  const create = (...shape: number[]): Tensor => empty(device, shape, { dtype });
  const output = create(batch, time, queryHeads, valueWidth);
  const operands = {
    q: headRowsOf(q),
    k: headRowsOf(keys),
    v: headRowsOf(values),
    output: headRowsOf(output),
    lse: create(batch, time, queryHeads).layout,
  };
  if (time !== 1) {
    device.run(attentionForward(problem, operands));
    return output;
  }
  const partials = create(decodePartials(problem)).layout;
  for (const dispatch of attentionDecode(problem, { ...operands, partials })) device.run(dispatch);
  return output;
}
