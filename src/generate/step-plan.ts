import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { empty, type Tensor, tensor } from "../autograd/tensor.ts";
import type { Device, Recording } from "../device/device.ts";
import type { Decoder, ModelContext } from "../models/decoder.ts";
import type { ModelState } from "../models/state.ts";
import type { Parameter } from "../nn/module.ts";
import { roomFor } from "../nn/rotary.ts";

/** Numbers of rows that have a plan at a time. */
const mostPlans = 16;

/** Tries to note a step down before it is left at that: first steps also pack weights and make tables. */
const mostTries = 4;

/** One token for so many rows: inputs and logits at fixed places, and the work between them. */
interface StepPlan {
  readonly tokens: Tensor;
  readonly rows: Tensor;
  /** Where the tokens stand, and the first place that the plan does not reach: tables of positions end there. */
  readonly positions: Tensor;
  readonly end: number;
  readonly logits: Tensor;
  readonly recording: Recording;
}

/**
 * Single steps of a decoder, a plan for every number of rows.
 *
 * A plan holds for the weights and states that it was made with; it is made again when they change or move, and where
 * tokens stand beyond the tables of positions that it reads. Models whose step asks for the lengths of sequences, as caches
 * and learned positions do, and devices without recordings, do each step anew.
 */
export class StepPlans {
  readonly #decoder: Decoder;
  readonly #device: Device;
  readonly #parameters: readonly Parameter[];
  /** By number of rows, the one used last at the end. */
  readonly #plans = new Map<number, StepPlan>();
  readonly #seen = new Set<number>();
  #triesLeft: number;
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
    this.forgetStale(states);
    const plan = this.#plans.get(slots.length);
    if (plan !== undefined && placesOf(states, slots).every((place) => place < plan.end))
      return this.replay(plan, states, slots, ids);
    if (plan !== undefined) {
      release(plan);
      this.#plans.delete(slots.length);
    }
    // The first step of so many rows may be the only one.
    if (this.#triesLeft > 0 && this.#seen.has(slots.length)) return this.record(states, slots, ids);
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
    this.#device.write(plan.tokens.layout, ids);
    this.#device.write(plan.rows.layout, Int32Array.from(slots));
    this.#device.write(plan.positions.layout, placesOf(states, slots));
    plan.recording.replay();
    states.advance(slots, 1);
    return valuesOf(plan.logits);
  }

  /** One step, done and noted down; the note is kept where it can be done again. */
  private record(states: ModelState, slots: readonly number[], ids: Int32Array): Float32Array {
    const device = this.#device;
    const options = { dtype: "int32", persistent: true } as const;
    const tokens = empty(device, [slots.length, 1], options);
    const rows = empty(device, [slots.length], options);
    const positions = empty(device, [slots.length, 1], options);
    const places = placesOf(states, slots);
    device.write(tokens.layout, ids);
    device.write(rows.layout, Int32Array.from(slots));
    device.write(positions.layout, places);
    const reads = states.lengthReads;
    const { result: logits, recording } = device.record!(() =>
      this.forward(tokens, { states, slots, rows, positions }),
    );
    const end = roomFor(Math.max(...places) + 1);
    const plan = { tokens, rows, positions, end, logits, recording };
    const values = valuesOf(logits);
    this.#triesLeft--;
    if (states.lengthReads > reads) this.#triesLeft = 0;
    if (states.lengthReads > reads || !recording.repeatable) release(plan);
    else this.keep(slots.length, plan);
    return values;
  }

  private keep(rows: number, plan: StepPlan): void {
    this.#triesLeft = mostTries;
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
    this.#weights = weights;
    this.#states = states.version;
  }
}

function placesOf(states: ModelState, slots: readonly number[]): Int32Array {
  return Int32Array.from(slots, (slot) => states.tokens(slot));
}

function release({ tokens, rows, positions, recording }: StepPlan): void {
  recording.dispose();
  tokens.dispose();
  rows.dispose();
  positions.dispose();
}

function valuesOf(logits: Tensor): Float32Array {
  const values = logits.dataSync();
  return values instanceof Float32Array ? values : Float32Array.from(values);
}
