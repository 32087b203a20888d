/** Dispatches of the additive form that is not causal: every query reads the state behind all keys. */
import type { Device, Kernel, Slice } from "../../device/device.ts";
import type { AddOperands, AddResults, AddRule } from "./add.ts";
import { addFlagsOf } from "./add.ts";
import type { AddCotangents, AddGradients } from "./add-backward.ts";
import { addParts, groupParts } from "./add-backward.ts";
import { addFullBackwardHost, addFullForwardHost } from "./add-full-host.ts";
import type { Packed, Sizes } from "./problem.ts";
import { checkSizes, sequenceCount } from "./problem.ts";

/** All keys into one state, all queries out of it. */
export const addFullKernel: Kernel = { key: "recurrence.addFull.forward", host: addFullForwardHost };
/** Its backward. */
export const addFullBackwardKernel: Kernel = {
  key: "recurrence.addFull.backward",
  host: addFullBackwardHost,
};

/** A rule without decay: there is no order that a gate could follow. */
export type AddFullRule = Omit<AddRule, "decay">;

/** Sizes with the queries' own length; `time` is that of keys and values. */
export interface FullSizes extends Sizes {
  readonly queryTime: number;
}

/** Packed sequences of queries and of keys: as many of one as of the other. */
export interface FullPacked {
  readonly queries: Packed;
  readonly keys: Packed;
}

/** Rows that the kernels take at a time. */
const blockRows = 32;

const padded = (n: number): number => (n + 3) & ~3;

/**
 * S = S0 + Σ_j k_j v_jᵀ, z = z0 + Σ_j k_j over all keys, o_i = scale Sᵀq_i or scale Sᵀq_i / (scale z·q_i + eps)
 * (Transformers are RNNs, arXiv 2006.16236). `o` has the queries' length.
 *
 * Cost: (Tq + Tk)·HV·K·V multiply-adds per sequence. Bits do not depend on the number of threads.
 */
export function addFullForward(
  device: Device,
  rule: AddFullRule,
  sizes: FullSizes,
  { q, k, v, initialState, initialNormalizer }: Omit<AddOperands, "g">,
  { o, finalState, finalNormalizer }: AddResults,
  packed?: FullPacked,
): void {
  checkSizes("recurrence", sizes, packed?.keys);
  const { time, queryTime, heads, valueHeads, keyWidth, valueWidth } = sizes;
  const sequences = sequenceCount(sizes, packed?.keys);
  const { threads } = device.info();
  const blocks = Math.ceil((2 * threads) / (sequences * valueHeads));
  const columns = Math.min(valueWidth, Math.max(16, Math.ceil(valueWidth / blocks / 16) * 16));
  const none = q.slice;
  device.run({
    kernel: addFullKernel,
    buffers: [
      ...[q.slice, k.slice, v.slice, initialState ?? none, initialNormalizer ?? none],
      ...[packed?.queries.cuSeqlens ?? none, packed?.keys.cuSeqlens ?? none],
      ...[o.slice, finalState ?? none, finalNormalizer ?? none],
    ],
    ints: [
      addFlagsOf(
        { ...rule, decay: "none" },
        { initialState, initialNormalizer, finalState, finalNormalizer, packed },
      ),
      ...[sequences, queryTime, time, heads, valueHeads, keyWidth, valueWidth],
      ...[q.stride, k.stride, v.stride, o.stride, columns],
    ],
    floats: [rule.scale, rule.eps],
    units: sequences * valueHeads * Math.ceil(valueWidth / columns),
    work: sizes.batch * (time + queryTime) * valueHeads * keyWidth * valueWidth,
    scratchBytes: 4 * (keyWidth * padded(columns) + (1 + blockRows) * padded(keyWidth)),
  });
}

/** Gradients of `addFullForward`; see `addBackward` for what is optional. */
export function addFullBackward(
  device: Device,
  rule: AddFullRule,
  sizes: FullSizes,
  operands: Omit<AddOperands, "g">,
  cotangents: AddCotangents,
  gradients: Omit<AddGradients, "dg">,
  packed?: FullPacked,
): void {
  checkSizes("recurrence", sizes, packed?.keys);
  const { batch, time, queryTime, heads, valueHeads, keyWidth, valueWidth } = sizes;
  const { q, k, v } = operands;
  const { dOutput } = cotangents;
  const { dq, dk, dv } = gradients;
  const sequences = sequenceCount(sizes, packed?.keys);
  const parts = groupParts(sequences * heads, valueHeads / heads);
  const width = heads * keyWidth;
  const [queryRows, keyRows] = [batch * queryTime, batch * time];
  const dtype = dq.slice.storage.dtype;
  const apart = [queryRows, keyRows].map((rows) => device.allocate(dtype, (parts - 1) * rows * width));
  const [dqParts, dkParts] = apart.map((storage) => ({ storage, offset: 0 }));
  const [keys, values] = [padded(keyWidth), padded(valueWidth)];
  device.run({
    kernel: addFullBackwardKernel,
    buffers: fullBuffers(operands, cotangents, gradients, packed, [dqParts, dkParts]),
    ints: [
      fullFlags(rule, operands, cotangents, gradients, packed),
      ...[sequences, queryTime, time, heads, valueHeads, keyWidth, valueWidth],
      ...[q.stride, k.stride, v.stride, dOutput.stride, dq.stride, dk.stride, dv.stride, parts],
    ],
    floats: [rule.scale, rule.eps],
    units: sequences * heads * parts,
    work: (2 * queryRows + 3 * keyRows) * valueHeads * keyWidth * valueWidth,
    scratchBytes: 256 + 4 * (2 * valueWidth * keys + keyWidth * values + (2 + 2 * blockRows) * keys),
  });
  addParts(device, dq.slice, dqParts, { rows: queryRows, width, stride: dq.stride, count: parts - 1 });
  addParts(device, dk.slice, dkParts, { rows: keyRows, width, stride: dk.stride, count: parts - 1 });
  for (const storage of apart) device.release(storage);
}

function fullBuffers(
  { q, k, v, initialState, initialNormalizer }: Omit<AddOperands, "g">,
  { dOutput, dFinalState, dFinalNormalizer }: AddCotangents,
  { dq, dk, dv, dInitialState, dInitialNormalizer }: Omit<AddGradients, "dg">,
  packed: FullPacked | undefined,
  apart: readonly Slice[],
): Slice[] {
  const none = q.slice;
  return [
    ...[q.slice, k.slice, v.slice, initialState ?? none, initialNormalizer ?? none],
    ...[packed?.queries.cuSeqlens ?? none, packed?.keys.cuSeqlens ?? none],
    ...[dOutput.slice, dFinalState ?? none, dFinalNormalizer ?? none],
    ...[dq.slice, dk.slice, dv.slice, dInitialState ?? none, dInitialNormalizer ?? none],
    ...apart,
  ];
}

function fullFlags(
  rule: AddFullRule,
  { initialState, initialNormalizer }: Omit<AddOperands, "g">,
  { dFinalState, dFinalNormalizer }: AddCotangents,
  { dInitialState, dInitialNormalizer }: Omit<AddGradients, "dg">,
  packed: FullPacked | undefined,
): number {
  return addFlagsOf(
    { ...rule, decay: "none" },
    {
      ...{ initialState, initialNormalizer, finalState: dFinalState, finalNormalizer: dFinalNormalizer },
      ...{ packed, initialStateGradient: dInitialState, initialNormalizerGradient: dInitialNormalizer },
    },
  );
}
