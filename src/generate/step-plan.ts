import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { empty, Tensor, tensor } from "../autograd/tensor.ts";
import type { Device, Recording } from "../device/device.ts";
import type { StepPlaces } from "../mechanisms/layer.ts";
import type { Decoder, ModelContext } from "../models/decoder.ts";
import type { ModelState } from "../models/state.ts";
import type { Parameter } from "../nn/module.ts";
import { roomFor } from "../nn/rotary.ts";

/** Numbers of rows that have a plan at a time. */
const mostPlans = 16;

/**
 * Bytes of a plan: all that a step makes stays where it is. With more of it kernels take so long that what JavaScript
 * takes between them no longer counts.
 */
const mostPlanBytes = 16 * 2 ** 20;

/** Tries to note a step down before it is left at that: first steps also pack weights and make tables. */
const mostTries = 4;

/** What a step is told: one block of memory, int32 `[5, B]`, and its rows by what they say. */
interface StepInputs extends Omit<StepPlaces, "last"> {
  readonly block: Tensor;
  /** `[B, 1]` */
  readonly tokens: Tensor;
  /** `[B]`: slots. */
  readonly rows: Tensor;
}

/** One token for so many rows: inputs and logits at fixed places, and the work between them. */
interface StepPlan {
  readonly inputs: StepInputs;
  /** The first place that the plan does not reach: tables of positions, or the room of caches, end there. */
  readonly end: number;
  readonly logits: Tensor;
  readonly recording: Recording;
  readonly bytes: number;
}

/**
 * Single steps of a decoder, a plan for every number of rows.
 *
 * A plan holds for the weights and states that it was made with; it is made again when they change or move, as caches do
 * when their room is used up, and where tokens stand beyond the tables of positions that it reads. Models whose step asks for
 * the lengths of sequences, as windows in a ring do, and devices without recordings, do each step anew.
 */
export class StepPlans {
  readonly #decoder: Decoder;
  readonly #device: Device;
  readonly #parameters: readonly Parameter[];
  /** By number of rows, the one used last at the end. */
  readonly #plans = new Map<number, StepPlan>();
  readonly #seen = new Set<number>();
  #triesLeft: number;
  /** Plans of more rows are too large. */
  #mostRows = Number.POSITIVE_INFINITY;
  #weights = -1;
  #states = -1;

  constructor(decoder: Decoder, device: Device) {
    this.#decoder = decoder;
    this.#device = device;
    this.#parameters = decoder.parameters();
    this.#triesLeft = device.record === undefined ? 0 : mostTries;
  }

  /** Logits `[slots.length · vocabulary]` after one more token of every row. */
  step(states: ModelState, slots: readonly number[], ids: Int32Array): Float32Array {
    states.check(slots);
    states.makeRoom(slots, 1);
    this.forgetStale(states);
    const furthest = Math.max(...slots.map((slot) => states.tokens(slot)));
    const plan = this.#plans.get(slots.length);
    this.#plans.delete(slots.length);
    if (plan !== undefined && furthest < plan.end) {
      this.#plans.set(slots.length, plan);
      return this.replay(plan, states, slots, ids);
    }
    if (plan !== undefined) release(plan);
    const end = Math.min(roomFor(furthest + 1), states.room, this.#decoder.positions.room);
    // The first step of so many rows may be the only one; one beyond the last learned position has its error to tell.
    const isWorthIt = this.#seen.has(slots.length) && furthest < end && slots.length <= this.#mostRows;
    if (this.#triesLeft > 0 && isWorthIt) return this.record(states, slots, ids, end);
    this.#seen.add(slots.length);
    return scope(this.#device, () => {
      const tokens = tensor(this.#device, ids, [slots.length, 1], { dtype: "int32" });
      return valuesOf(this.forward(tokens, { states, slots }));
    });
  }

  /** Ends all plans. */
  dispose(): void {
    for (const plan of this.#plans.values()) release(plan);
    this.#plans.clear();
  }

  private forward(tokens: Tensor, state: NonNullable<ModelContext["state"]>): Tensor {
    return noGrad(() => this.#decoder.forward(tokens, { state, lastOnly: true, checked: true }).logits);
  }

  private replay(
    plan: StepPlan,
    states: ModelState,
    slots: readonly number[],
    ids: Int32Array,
  ): Float32Array {
    this.#device.write(plan.inputs.block.layout, told(states, slots, ids));
    plan.recording.replay();
    states.advance(slots, 1);
    return valuesOf(plan.logits);
  }

  /** One step, done and noted down; the note is kept where it can be done again. */
  private record(states: ModelState, slots: readonly number[], ids: Int32Array, end: number): Float32Array {
    const reads = states.lengthReads;
    this.#triesLeft--;
    const plan = this.note(states, slots, ids, end);
    const values = valuesOf(plan.logits);
    if (states.lengthReads > reads) this.#triesLeft = 0;
    if (states.lengthReads > reads || !plan.recording.repeatable) release(plan);
    else this.keep(slots.length, plan);
    return values;
  }

  private note(states: ModelState, slots: readonly number[], ids: Int32Array, end: number): StepPlan {
    const device = this.#device;
    const before = device.info().bytes.persistent;
    const inputs = inputsFor(device, slots.length);
    try {
      device.write(inputs.block.layout, told(states, slots, ids));
      const { tokens, rows, positions, lengths, entries } = inputs;
      const places = { positions, lengths, entries, last: end - 1 };
      const { result: logits, recording } = device.record!(() =>
        this.forward(tokens, { states, slots, rows, places }),
      );
      return { inputs, end, logits, recording, bytes: device.info().bytes.persistent - before };
    } catch (error) {
      inputs.block.dispose();
      throw error;
    }
  }

  private keep(rows: number, plan: StepPlan): void {
    this.#triesLeft = mostTries;
    if (plan.bytes > mostPlanBytes) {
      this.#mostRows = rows - 1;
      release(plan);
      return;
    }
    this.#plans.set(rows, plan);
    if (this.#plans.size <= mostPlans) return;
    const [oldest, first] = this.#plans.entries().next().value!;
    release(first);
    this.#plans.delete(oldest);
  }

  private forgetStale(states: ModelState): void {
    let weights = 0;
    for (const { version } of this.#parameters) weights += version;
    if (weights === this.#weights && states.version === this.#states) return;
    this.dispose();
    this.#seen.clear();
    this.#mostRows = Number.POSITIVE_INFINITY;
    this.#weights = weights;
    this.#states = states.version;
  }
}

function inputsFor(device: Device, count: number): StepInputs {
  const block = empty(device, [5, count], { dtype: "int32", persistent: true });
  const row = (n: number, shape: readonly number[]): Tensor => {
    const { storage, offset } = block.layout;
    return new Tensor({ storage, offset: offset + n * count, strides: shape.map(() => 1) }, shape);
  };
  return {
    ...{ block, tokens: row(0, [count, 1]), rows: row(1, [count]), positions: row(2, [count, 1]) },
    ...{ lengths: row(3, [count]), entries: row(4, [count]) },
  };
}

/** The values of a step's inputs, row by row. */
function told(states: ModelState, slots: readonly number[], ids: Int32Array): Int32Array {
  const count = slots.length;
  const values = new Int32Array(5 * count);
  values.set(ids);
  for (const [n, slot] of slots.entries()) {
    const seen = states.tokens(slot);
    values[count + n] = slot;
    values[2 * count + n] = seen;
    values[3 * count + n] = seen + 1;
    values[4 * count + n] = states.entryOf(slot);
  }
  return values;
}

function release({ inputs, recording }: StepPlan): void {
  recording.dispose();
  inputs.block.dispose();
}

function valuesOf(logits: Tensor): Float32Array {
  const values = logits.dataSync();
  return values instanceof Float32Array ? values : Float32Array.from(values);
}
