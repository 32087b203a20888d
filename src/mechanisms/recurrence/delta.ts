/**
 * The write-delta half of the recurrence: S <- exp(g) ∘ S, u = beta (v − Sᵀk), S <- S + k uᵀ, o = scale · Sᵀq, with
 * decay none, per head, per token or per key channel, as kernels and as functions that lay out their dispatches.
 */
import type { Device, Dispatch, Kernel, Slice } from "../../device/device.ts";
import { UnsupportedError } from "../../errors.ts";
import { hostForward, hostStep } from "./delta-host.ts";
import { hostBackward } from "./delta-host-backward.ts";
import type { DeltaJob, DeltaPlan } from "./delta-job.ts";
import {
  ceilTo,
  checkDelta,
  deltaOrder,
  deltaPlan,
  flagBits,
  sharedArguments,
  unitColumns,
} from "./delta-job.ts";
import { backwardScratch, chunkwiseScratch, recurrentScratch, stepScratch } from "./delta-scratch.ts";
import type { Rows } from "./problem.ts";
import { sequenceCount, sideBySide } from "./problem.ts";

export type { DeltaJob, DeltaOrder, DeltaPlan } from "./delta-job.ts";
export { deltaOrder, deltaPlan } from "./delta-job.ts";

/** Two tokens at a time, the state brought forward over both. */
export const deltaRecurrentForward: Kernel = { key: "recurrence.deltaRecurrent.forward", host: hostForward };
/** Chunk by chunk in WY form. */
export const deltaChunkwiseForward: Kernel = { key: "recurrence.deltaChunkwise.forward", host: hostForward };
/** Every pair of tokens at once. */
export const deltaParallelForward: Kernel = { key: "recurrence.deltaParallel.forward", host: hostForward };
/** All gradients, chunk by chunk from the last. */
export const deltaChunkwiseBackward: Kernel = {
  key: "recurrence.deltaChunkwise.backward",
  host: hostBackward,
};

/** One token for many rows, each on a slot of a slab of states. */
export const deltaStepForward: Kernel = { key: "recurrence.deltaStep.forward", host: hostStep };

/** Forward forms over whole sequences. */
export type DeltaForm = "recurrent" | "chunkwise" | "parallel";

const forwardKernels: Readonly<Record<DeltaForm, Kernel>> = {
  recurrent: deltaRecurrentForward,
  chunkwise: deltaChunkwiseForward,
  parallel: deltaParallelForward,
};

/** Where the results of a forward pass go. */
export interface DeltaOutputs {
  readonly o: Rows;
  /** [N,HV,K,V]. */
  readonly finalState?: Slice | undefined;
  /** `deltaPlan(job).keptLength` floats that the backward pass needs; undefined where there will be none. */
  readonly keptStates?: Slice | undefined;
}

/** Rough multiply-adds of a forward pass. */
function forwardWork({ sizes }: DeltaJob): number {
  return 3 * sizes.batch * sizes.time * sizes.valueHeads * sizes.keyWidth * sizes.valueWidth;
}

/** A chunk as long as the job for the form that has no chunks, the plan's otherwise. */
function formPlan(form: DeltaForm, job: DeltaJob): DeltaPlan {
  const plan = deltaPlan(job);
  return form === "parallel" ? { ...plan, chunk: Math.max(1, job.sizes.time) } : plan;
}

/**
 * Lays out one forward pass of the delta family.
 *
 * `recurrent` goes along time by pairs of tokens (and is the fastest on a CPU for K = V = 64), `chunkwise` by chunks of tokens,
 * `parallel` makes every T × T pair at once and is meant for short sequences. All give the same values within float32
 * rounding; what a prefix gets never depends on what follows it.
 *
 * @param device Where it will run: how many heads a unit walks side by side depends on its threads, no bit of a result does.
 * @param form How the work is done.
 * @param job q, keys [B,T,H,K], v [B,T,HV,V], beta [B,T,HV], g [HV] | [B,T,HV] | [B,T,HV,K], initial state [N,HV,K,V].
 * @param outputs o [B,T,HV,V], and where they are wanted the final state and the states that backward needs.
 * @throws ShapeError where axes contradict each other; UnsupportedError for an order of reads that a form cannot do.
 */
export function deltaForward(
  device: Device,
  form: DeltaForm,
  job: DeltaJob,
  outputs: DeltaOutputs,
): Dispatch {
  const who = `recurrence.delta.${form}`;
  checkDelta(who, job);
  const order = job.order ?? deltaOrder;
  if (form !== "recurrent" && (order.undecayedCorrection || order.readFirst))
    throw new UnsupportedError(
      `[${who}] order of reads: expected a correction from the decayed state and a read after the write, got another`,
      "Use the recurrent form or single steps for it.",
    );
  const plan = formPlan(form, job);
  const columns = unitColumns(job);
  const flags =
    (outputs.finalState === undefined ? 0 : flagBits.final) |
    (outputs.keptStates === undefined ? 0 : flagBits.kept);
  const { buffers, ints } = sharedArguments(job, plan, columns, flags);
  const nothing = job.q.slice;
  const { sizes } = job;
  const { valueHeads, keyWidth, valueWidth } = sizes;
  const sequences = sequenceCount(sizes, job.packed);
  const perSequence = valueHeads * Math.ceil(valueWidth / columns);
  const together =
    form === "recurrent" ? sideBySide(device, sequences, perSequence, 4 * keyWidth * ceilTo(columns, 16)) : 1;
  return {
    kernel: forwardKernels[form],
    buffers: [...buffers, outputs.o.slice, outputs.finalState ?? nothing, outputs.keptStates ?? nothing],
    ints: [...ints, outputs.o.stride, ...(form === "recurrent" ? [together] : [])],
    floats: [job.scale],
    units: (sequences * perSequence) / together,
    work: forwardWork(job),
    scratchBytes:
      form === "recurrent"
        ? recurrentScratch(sizes, columns, together)
        : chunkwiseScratch(sizes, columns, plan.chunk, job.decay === "key"),
  };
}

/** Slots of a slab of carried states, one for every row of a step. */
export interface DeltaSlots {
  /** int32 [rows], all different. */
  readonly slots: Slice;
  /** [slots,HV,K,V], changed in place. */
  readonly states: Slice;
}

/**
 * Lays out one token for `sizes.batch` rows (`sizes.time` is not looked at), each on its own slot of a slab of states.
 * The recurrent form takes two tokens at a time, so it agrees within float32 rounding, not bit for bit. Cost: rows · HV ·
 * 4 · K · V multiply-adds and the bytes of the slots once.
 *
 * @param job q, keys [rows,H,K], v [rows,HV,V], beta [rows,HV], g [HV] | [rows,HV] | [rows,HV,K]; no initial state.
 * @param slots Which states, and where they are.
 * @param o [rows,HV,V].
 * @throws ShapeError where axes contradict each other.
 */
export function deltaStep(job: DeltaJob, slots: DeltaSlots, o: Rows): Dispatch {
  checkDelta("recurrence.delta.step", job);
  const sizes = { ...job.sizes, time: 1 };
  const one = { ...job, sizes, initialState: undefined, packed: undefined };
  const columns = unitColumns(one);
  const { buffers, ints } = sharedArguments(one, { chunk: 1, segment: 1, keptLength: 0 }, columns, 0);
  return {
    kernel: deltaStepForward,
    buffers: [...buffers.slice(0, 6), slots.slots, slots.states, o.slice],
    ints: [...ints, o.stride],
    floats: [job.scale],
    units: sizes.batch * sizes.valueHeads * Math.ceil(sizes.valueWidth / columns),
    work: (4 / 3) * forwardWork(one),
    scratchBytes: stepScratch(sizes),
  };
}

/** Where the gradients come from and go. */
export interface DeltaGradients {
  /** What a forward pass of the same job and chunk length kept. */
  readonly keptStates: Slice;
  readonly dO: Rows;
  /** [N,HV,K,V]; zeros where it is undefined. */
  readonly dFinalState?: Slice | undefined;
  readonly dq: Rows;
  /** Gradient of the erase key, of both keys where the job has one. */
  readonly dEraseKey: Rows;
  readonly dWriteKey?: Rows | undefined;
  readonly dv: Rows;
  readonly dBeta: Rows;
  /** One a token also with decay `head`: its gradient is the sum over batch and time. */
  readonly dg?: Rows | undefined;
  readonly dInitialState?: Slice | undefined;
}

/**
 * Lays out the backward pass of the delta family: time O(T), memory beside its operands one segment of states a thread.
 *
 * @param job The job of the forward pass.
 * @param gradients Cotangents, kept states, and where each gradient goes (overwritten).
 * @throws UnsupportedError for an order of reads other than that of the delta rule.
 */
export function deltaBackward(job: DeltaJob, gradients: DeltaGradients): Dispatch {
  const who = "recurrence.delta.backward";
  checkDelta(who, job);
  const order = job.order ?? deltaOrder;
  if (order.undecayedCorrection || order.readFirst)
    throw new UnsupportedError(
      `[${who}] order of reads: expected a correction from the decayed state and a read after the write, got another`,
    );
  const plan = deltaPlan(job);
  const nothing = job.q.slice;
  const separate = job.writeKey !== undefined && gradients.dWriteKey !== undefined;
  const dWrite = separate ? gradients.dWriteKey! : gradients.dEraseKey;
  const flags =
    (separate ? 0 : flagBits.oneKey) |
    (gradients.dFinalState === undefined ? 0 : flagBits.final) |
    (gradients.dg === undefined ? 0 : flagBits.gateGradient) |
    (gradients.dInitialState === undefined ? 0 : flagBits.initialGradient);
  const { sizes } = job;
  const { buffers, ints } = sharedArguments(job, plan, sizes.valueWidth, flags);
  return {
    kernel: deltaChunkwiseBackward,
    buffers: [
      ...[...buffers, gradients.keptStates, gradients.dO.slice, gradients.dFinalState ?? nothing],
      ...[gradients.dq.slice, gradients.dEraseKey.slice, dWrite.slice, gradients.dv.slice],
      ...[gradients.dBeta.slice, gradients.dg?.slice ?? nothing, gradients.dInitialState ?? nothing],
    ],
    ints: [
      ...[...ints, gradients.dO.stride, gradients.dq.stride, gradients.dEraseKey.stride, dWrite.stride],
      ...[gradients.dv.stride, gradients.dBeta.stride, gradients.dg?.stride ?? 0],
    ],
    floats: [job.scale],
    units: sequenceCount(sizes, job.packed) * sizes.heads,
    work: 4 * forwardWork(job),
    scratchBytes: backwardScratch(sizes, plan.chunk, plan.segment, job.decay === "key"),
  };
}
