/** Attention of tokens that hashing brings together. */
import { empty, full, type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { l2Norm } from "../../ops/norm/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { attention } from "../attention/attention-op.ts";
import { mergeParts } from "../attention/merge-op.ts";
import { headRowsOf } from "../attention/operands.ts";
import { pairsHost, sortHost } from "./host.ts";
import { gathered, withGroupBefore } from "./sorted.ts";

/** Order of tokens by their buckets. */
export const sortForward: Kernel = { key: "lsh.sort.forward", host: sortHost };
/** What counts of a group and the one before it. */
export const pairsForward: Kernel = { key: "lsh.pairs.forward", host: pairsHost };

/** What a token is to itself: seen only where there is nothing else. */
const selfScore = -5e4;

/** How tokens are hashed and grouped. */
export interface LshChoices {
  /** `[rounds,K,buckets/2]` */
  readonly rotations: Tensor;
  /** Tokens of a group of the sorted sequence. */
  readonly group: number;
  readonly causal: boolean;
  readonly scale: number;
}

/** Where every token stands in every round. */
interface Sorted {
  /** int32 `[B,H,R,T]` */
  readonly order: Tensor;
  readonly groups: Tensor;
  /** int32: rows `(b·T + t)·H + h` by slot, and slots by round and row. */
  readonly ids: Tensor;
  readonly inverse: Tensor;
  /** Groups of one round of one head, the last one filled up. */
  readonly groupCount: number;
}

function sorted(q: Tensor, { rotations, group }: LshChoices): Sorted {
  const { device } = q;
  const [B, T, H, K] = q.shape as [number, number, number, number];
  const [R, , half] = rotations.shape as [number, number, number];
  const groupCount = Math.ceil(T / group);
  const slots = groupCount * group;
  const integers = (...shape: number[]): Tensor => empty(device, shape, { dtype: "int32" });
  const order = integers(B, H, R, T);
  const groups = integers(B, H, R, T);
  const ids = integers(B * H * R * slots);
  const inverse = integers(R * B * T * H);
  const rows = headRowsOf(q);
  device.run({
    kernel: sortForward,
    buffers: [rows.slice, packed(rotations).layout, order.layout, groups.layout, ids.layout, inverse.layout],
    ints: [B, T, H, K, half, R, group, slots, rows.batch, rows.token, rows.head],
    floats: [],
    units: B * H * R,
    work: B * H * R * T * K * half,
    scratchBytes: 128 + 4 * (half + 4 + 2 * half + 1 + T),
  });
  return { order, groups, ids, inverse, groupCount };
}

/** What is added to the scores, `[F,1,group,2·group]`, and which keys are there at all, int32 `[F,2·group]`. */
function pairsOf(
  q: Tensor,
  { order, groups, groupCount }: Sorted,
  { group, causal }: LshChoices,
): { readonly bias: Tensor; readonly mask: Tensor } {
  const { device, dtype } = q;
  const [B, H, R, T] = order.shape as [number, number, number, number];
  const units = B * H * R * groupCount;
  const bias = empty(device, [units, 1, group, 2 * group], { dtype });
  const mask = empty(device, [units, 2 * group], { dtype: "int32" });
  const logs = tensor(
    device,
    Array.from({ length: R + 1 }, (_, n) => Math.log(Math.max(1, n))),
    [R + 1],
    { dtype },
  );
  device.run({
    kernel: pairsForward,
    buffers: [order.layout, groups.layout, logs.layout, bias.layout, mask.layout],
    ints: [T, R, group, groupCount, Number(causal)],
    floats: [selfScore],
    units,
    work: units * group * 2 * group * (R + 2),
    scratchBytes: 64 + 4 * (2 * group + 4) * (R + 1) + 16,
  });
  return { bias, mask };
}

/**
 * softmax over the tokens that share a group of the sorted order, or the one before, in any of the rounds; a pair of
 * several rounds counts once, a token sees itself where there is nothing else.
 *
 * `q [B,T,H,K]`, `v [B,T,H,V]` → `[B,T,H,V]`; keys are q at unit length. Memory and time O(rounds·T·group).
 */
export function attendHashed(q: Tensor, v: Tensor, choices: LshChoices): Tensor {
  const { group, scale } = choices;
  const [B, T, H, K] = q.shape as [number, number, number, number];
  const V = v.shape[3]!;
  const R = choices.rotations.shape[0]!;
  if (q.size === 0 || v.size === 0) return full(q.device, v.shape, 0, { dtype: v.dtype });
  const places = sorted(q, choices);
  const { bias, mask } = pairsOf(q, places, choices);
  const units = mask.shape[0]!;
  const rows = B * T * H;
  const take = (x: Tensor, width: number): Tensor => gathered(reshape(x, [rows, width]), places.ids);
  const beside = (x: Tensor, width: number): Tensor => withGroupBefore(take(x, width), group);
  const { output, lse } = attention(
    {
      q: reshape(take(q, K), [units, group, 1, K]),
      k: beside(l2Norm(q, { eps: 1e-6 }), K),
      v: beside(v, V),
      ...{ bias, mask },
    },
    { scale, causal: false },
  );
  const back = (x: Tensor, width: number): Tensor =>
    gathered(reshape(x, [units * group, width]), places.inverse);
  const outputs = reshape(back(output, V), [R, rows, V]);
  const joined = R === 1 ? outputs : mergeParts(outputs, reshape(back(lse, 1), [R, rows])).output;
  return reshape(joined, [B, T, H, V]);
}
