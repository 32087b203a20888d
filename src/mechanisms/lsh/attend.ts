/** Attention of tokens that hashing brings together. */
import { empty, full, type Tensor } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { l2Norm } from "../../ops/norm/index.ts";
import { headRowsOf } from "../attention/operands.ts";
import { attendGroups, type GroupOptions } from "./groups.ts";
import { sortHost } from "./host-sort.ts";

/** Order of tokens by their buckets. */
export const sortForward: Kernel = { key: "lsh.sort.forward", host: sortHost };

/** How tokens are hashed and grouped. */
export interface LshChoices extends GroupOptions {
  /** `[rounds,K,buckets/2]` */
  readonly rotations: Tensor;
}

/** Tokens that are rotated together, as in sort.as.ts. */
const rotated = 32;

/** Where every token stands in every round: tokens by their group and then by position, the group of each. */
function sorted(q: Tensor, { rotations, group }: LshChoices): { order: Tensor; groups: Tensor } {
  const { device } = q;
  const [B, T, H, K] = q.shape as [number, number, number, number];
  const [R, , half] = rotations.shape as [number, number, number];
  const groupCount = Math.ceil(T / group);
  const order = empty(device, [B, H, R, T], { dtype: "int32" });
  const groups = empty(device, [B, H, R, T], { dtype: "int32" });
  const rows = headRowsOf(q);
  device.run({
    kernel: sortForward,
    buffers: [rows.slice, packed(rotations).layout, order.layout, groups.layout],
    ints: [B, T, H, K, half, R, group, groupCount, rows.batch, rows.token, rows.head],
    floats: [],
    units: B * H * R,
    work: B * H * R * T * K * half,
    scratchBytes: 128 + 4 * (2 * rotated * half + Math.max(2 * half + 1, groupCount) + T + 8),
  });
  return { order, groups };
}

/**
 * softmax over the tokens that share a group of the sorted order, or the one before, in any of the rounds; a pair of
 * several rounds counts once, a token sees itself where there is nothing else.
 *
 * `q [B,T,H,K]`, `v [B,T,H,V]` → `[B,T,H,V]`; keys are q at unit length. Memory O(rounds·T), time O(rounds·T·group).
 */
export function attendHashed(q: Tensor, v: Tensor, choices: LshChoices): Tensor {
  if (q.size === 0 || v.size === 0) return full(q.device, v.shape, 0, { dtype: v.dtype });
  // A group beyond all tokens is a group of all: kernels keep room for whole groups.
  const own = { ...choices, group: Math.min(choices.group, q.shape[1]!) };
  return attendGroups({ q, k: l2Norm(q, { eps: 1e-6 }), v, ...sorted(q, own) }, own);
}
