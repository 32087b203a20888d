import { copyInto } from "../../autograd/move.ts";
import { rowsOf } from "../../autograd/rows.ts";
import { isRecording } from "../../autograd/tape.ts";
import { empty, full, Tensor, tensor } from "../../autograd/tensor.ts";
import { UnsupportedError } from "../../errors.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { addStep } from "./add.ts";
import { deltaStep } from "./delta.ts";
import { gateAxes } from "./gate.ts";
import type { Rows } from "./problem.ts";
import {
  defaultEps,
  mapPair,
  type RecurrenceCall,
  type RecurrenceInputs,
  type RecurrenceOutputs,
  type RecurrenceRule,
  scaleOf,
} from "./rule.ts";

/** Carried states of many sequences: `state [slots,HV,K,V]` and, where there is one, `normalizer [slots,HV,K]`. */
export interface Slab {
  readonly state: Tensor;
  readonly normalizer?: Tensor | undefined;
}

/** One token of every row. */
export type StepInputs = Omit<RecurrenceInputs, "initialState" | "initialNormalizer">;

/**
 * One token for every row, each on its own slot of a slab of states, which is changed in place.
 *
 * `q, k [B,1,H,K]`, `v [B,1,HV,V]`, gates and beta of one token, `slots` int32 `[B]`, all different → `[B,1,HV,V]`.
 * No gradients. Cost: B·HV·2·K·V multiply-adds and the bytes of the slots once.
 *
 * @throws ShapeError where axes disagree.
 */
export function stepOn(
  rule: RecurrenceRule,
  slab: Slab,
  slots: Tensor,
  inputs: StepInputs,
  call: Pick<RecurrenceCall, "scale" | "eps" | "map"> = {},
): Tensor {
  const { v, g, beta } = inputs;
  const { q, k, map } = mapPair(rule, "step", inputs, call.map);
  const sizes = solveAxes("recurrence.step", {
    q: { shape: q.shape, axes: "B 1 H K" },
    k: { shape: k.shape, axes: "B 1 H K" },
    v: { shape: v.shape, axes: "B 1 HV V" },
    g: g && { shape: g.shape, axes: gateAxes(rule.decay).replace("T", "1") },
    beta: beta && { shape: beta.shape, axes: "B 1 HV" },
    slots: { shape: slots.shape, axes: "B" },
    state: { shape: slab.state.shape, axes: "slots HV K V" },
    normalizer: slab.normalizer && { shape: slab.normalizer.shape, axes: "slots HV K" },
  });
  const output = empty(v.device, v.shape, { dtype: v.dtype });
  const { B: batch, H: heads, HV: valueHeads, K: keyWidth, V: valueWidth } = sizes;
  const axes = { batch, time: 1, heads, valueHeads, keyWidth, valueWidth };
  const { decay, normalize } = rule;
  const scale = scaleOf(rule, keyWidth, call.scale);
  const rows = { q: rowsOf(q, 2), v: rowsOf(v, 2), g: g && gateRows(rule, g) };
  const key = rowsOf(k, 2);
  const where = { slots: packed(slots).layout, states: slab.state.layout };
  const o = rowsOf(output, 2);
  if (rule.write === "delta") {
    const job = { ...rows, sizes: axes, decay, scale, eraseKey: key, beta: rowsOf(beta!) };
    v.device.run(deltaStep(job, where, o));
  } else {
    const additive = { decay, normalize, scale, eps: call.eps ?? defaultEps, map };
    addStep(
      v.device,
      additive,
      axes,
      { ...rows, k: key },
      { ...where, normalizers: slab.normalizer?.layout },
      o,
    );
  }
  return output;
}

function gateRows({ decay }: RecurrenceRule, g: Tensor): Rows {
  return decay === "head" ? { slice: packed(g).layout, stride: 0 } : rowsOf(g, decay === "key" ? 2 : 1);
}

/** Positions `from` to `to` of a time axis, a view. */
function span(x: Tensor, from: number, to: number): Tensor {
  const { storage, offset, strides } = x.layout;
  const shape = [x.shape[0]!, to - from, ...x.shape.slice(2)];
  return new Tensor({ storage, offset: offset + from * strides[1]!, strides }, shape);
}

/** The same positions of everything that has a time axis. */
function inputsAt({ decay }: RecurrenceRule, inputs: StepInputs, from: number, to: number): StepInputs {
  const { q, k, v, g, beta } = inputs;
  const cut = (x: Tensor): Tensor => span(x, from, to);
  return { q: cut(q), k: cut(k), v: cut(v), g: g && decay !== "head" ? cut(g) : g, beta: beta && cut(beta) };
}

/** First token and one past the last of every walk, and the slots it advances. */
function walks(v: Tensor, cuSeqlens: Tensor | undefined): readonly (readonly [number, number, Tensor])[] {
  const slots = (ids: readonly number[]): Tensor => tensor(v.device, ids, [ids.length], { dtype: "int32" });
  if (cuSeqlens === undefined) {
    return [[0, v.shape[1]!, slots(Array.from({ length: v.shape[0]! }, (_, b) => b))]];
  }
  const bounds = [...cuSeqlens.dataSync()];
  return bounds.slice(1).map((end, n) => [bounds[n]!, end, slots([n])] as const);
}

/** A whole sequence by single steps on a slab of its own, whose states come back at the end. No gradients. */
export function stepThrough(
  rule: RecurrenceRule,
  inputs: RecurrenceInputs,
  call: RecurrenceCall = {},
): RecurrenceOutputs {
  refuseRecorded(inputs);
  const { v, initialState, initialNormalizer } = inputs;
  const { device, dtype } = v;
  const K = inputs.k.shape.at(-1)!;
  const features = call.map?.width(K) ?? K;
  const [HV, V] = v.shape.slice(2) as [number, number];
  const count = call.cuSeqlens === undefined ? v.shape[0]! : call.cuSeqlens.size - 1;
  const own = (initial: Tensor | undefined, shape: readonly number[]): Tensor => {
    const state = full(device, shape, 0, { dtype });
    if (initial !== undefined) copyInto(state, initial);
    return state;
  };
  const state = own(initialState, [count, HV, features, V]);
  const normalizer = rule.normalize ? own(initialNormalizer, [count, HV, features]) : undefined;
  const output = empty(device, v.shape, { dtype });
  for (const [begin, end, slots] of walks(v, call.cuSeqlens)) {
    for (let t = begin; t < end; t++) {
      const token = inputsAt(rule, inputs, t, t + 1);
      copyInto(span(output, t, t + 1), stepOn(rule, { state, normalizer }, slots, token, call));
    }
  }
  return { output, finalState: state, finalNormalizer: normalizer };
}

function refuseRecorded(inputs: RecurrenceInputs): void {
  if (!isRecording()) return;
  for (const [name, input] of Object.entries(inputs)) {
    if (!input?.requiresGrad) continue;
    throw new UnsupportedError(
      `[recurrence.step] single steps have no gradients: expected inputs without them, got ${name} that requires one`,
      "Train with the chunkwise form, or wrap the call in noGrad.",
    );
  }
}
