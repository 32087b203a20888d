/** Attention inside groups of a sorted sequence, over all rounds of sorting, as a differentiable op. */
import { scope } from "../../autograd/scope.ts";
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { attentionMerge } from "../attention/merge.ts";
import { headRowsOf } from "../attention/operands.ts";
import { groupsBackwardHost, groupsForwardHost } from "./host.ts";

/** Outputs and log-sum-exp of every round. */
export const groupsForward: Kernel = { key: "lsh.groups.forward", host: groupsForwardHost };
/** Gradients of queries, keys and values over all rounds. */
export const groupsBackward: Kernel = { key: "lsh.groups.backward", host: groupsBackwardHost };

/** Which tokens meet, and how much they count. */
export interface GroupOptions {
  /** Tokens of a group. */
  readonly group: number;
  readonly causal: boolean;
  /** Multiplies q·k. */
  readonly scale: number;
}

/** `q,k [B,T,H,K]`, `v [B,T,H,V]`; tokens by their group and then by position, and the group of each, int32 `[B,H,R,T]`. */
export type GroupInputs = {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly order: Tensor;
  readonly groups: Tensor;
};

type Outputs = { output: Tensor; lse: Tensor };

/** Queries that kernels take at a time, at most. */
const panel = 16;

/** Bytes of scratch memory for pieces of so many floats. */
function bytesOf(...pieces: readonly number[]): number {
  return pieces.reduce((sum, floats) => sum + 64 * Math.ceil(floats / 16), 0);
}

/** What both passes keep of a group, as `openScratch` of group.as.ts lays it out. */
function groupBytes({ q, v, order }: GroupInputs, keys: number): number {
  const [K, V, R] = [q.shape[3]!, v.shape[3]!, order.shape[2]!];
  return 128 + (R + 1) * bytesOf(keys + 16) + bytesOf(keys * K, keys * V, panel * K, panel);
}

function scratchBytes(inputs: GroupInputs, group: number, isForward: boolean): number {
  const [K, V] = [inputs.q.shape[3]!, inputs.v.shape[3]!];
  const keys = 2 * group;
  if (isForward) {
    const own = bytesOf(panel * Math.max(K, V), panel * V, 2 * panel, panel * keys);
    return groupBytes(inputs, keys) + own;
  }
  const queries = bytesOf(panel * K, panel * V, panel * V, panel, panel);
  const own = bytesOf(panel * keys, panel * keys, keys * K, keys * V);
  return groupBytes(inputs, keys) + 64 + queries + own;
}

/** A dispatch of one of the two kernels; `written` are output, lse and, backward, the gradients. */
function dispatchOf(
  kernel: Kernel,
  inputs: GroupInputs,
  options: GroupOptions,
  written: readonly Slice[],
): Dispatch {
  const { q, k, v, order, groups } = inputs;
  const [B, T, H, K] = q.shape as [number, number, number, number];
  const [V, R] = [v.shape[3]!, order.shape[2]!];
  const { group, causal, scale } = options;
  const groupCount = Math.ceil(T / group);
  const isForward = kernel === groupsForward;
  const rows = [q, k, v].map(headRowsOf);
  const gradients = isForward ? rows.slice(0, 1).flatMap(({ slice }) => [slice, slice, slice, slice]) : [];
  const strides = rows.flatMap(({ batch, token, head }) => [batch, token, head]);
  return {
    kernel,
    buffers: [
      ...rows.map(({ slice }) => slice),
      ...[packed(order).layout, packed(groups).layout],
      ...written,
      ...gradients,
    ],
    ints: [B, T, H, K, V, R, group, groupCount, Number(causal), ...strides],
    floats: [scale],
    units: isForward ? B * H * R * groupCount : B * H,
    work: B * H * R * T * 2 * group * (K + V) * (isForward ? 1 : 2.5),
    scratchBytes: scratchBytes(inputs, group, isForward),
  };
}

const op: Op<GroupInputs, GroupOptions, Outputs> = {
  name: "lsh.groups",
  forward(inputs, options) {
    const { v, order } = inputs;
    const { device, dtype } = v;
    const [B, T, H, V] = v.shape as [number, number, number, number];
    const parts = order.shape[2]!;
    const rows = B * T * H;
    const outputs = scope(device, () => {
      const output = empty(device, [B, T, H, V], { dtype });
      const lse = empty(device, [B, T, H], { dtype });
      const each = parts === 1 ? output : empty(device, [parts, rows, V], { dtype });
      const eachLse = parts === 1 ? lse : empty(device, [parts, rows], { dtype });
      device.run(dispatchOf(groupsForward, inputs, options, [each.layout, eachLse.layout]));
      if (parts > 1)
        device.run(
          attentionMerge(
            { rows, valueWidth: V, parts, heads: H, time: T },
            { output: each.layout, lse: eachLse.layout },
            { output: output.layout, lse: lse.layout },
          ),
        );
      return { output, lse };
    });
    return { outputs, saved: undefined };
  },
  backward({ inputs, options, outputs, grads }) {
    if (grads.output === undefined) return {};
    const { q, k, v } = inputs;
    const like = (x: Tensor): Tensor => empty(x.device, x.shape, { dtype: x.dtype });
    const result = { q: like(q), k: like(k), v: like(v) };
    const given = [outputs.output, outputs.lse, packed(grads.output)];
    const written = [...given, result.q, result.k, result.v].map(({ layout }) => layout);
    q.device.run(dispatchOf(groupsBackward, inputs, options, written));
    return result;
  },
};

/**
 * softmax(scale · q kᵀ) v over the tokens that stand in a query's group or in the one before in any round; a token itself
 * counts where there is nothing else. Its log-sum-exp has no gradient.
 *
 * Each pair counts in the first round in which it meets, so that the rounds join by their log-sum-exp. Costs 2·(K + V)
 * flops and one exp per pair and round, the later half of a group's pairs left out where causal; memory O(R·T·V) while it
 * runs, `output [B,T,H,V]` and `lse [B,T,H]` after it.
 */
export function attendGroups(inputs: GroupInputs, options: GroupOptions): Tensor {
  return apply(op, inputs, options).output;
}
