import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError, DisposedError } from "../errors.ts";
import type { Decoder } from "../models/decoder.ts";
import type { ModelState } from "../models/state.ts";
import { StepPlans } from "./step-plan.ts";

/**
 * A decoder on its device, with the states of all sequences that it is continuing.
 *
 * Every sequence owns a slot of the states; any of them advance together, and what one of them gets does not depend on
 * which others are beside it, bit for bit.
 *
 * @example
 * const runner = new Runner(model.decoder, device);
 * const slots = [runner.takeSlot(), runner.takeSlot()];
 * const [first, second] = runner.advance(slots, Int32Array.of(65, 66), 1);
 */
export class Runner {
  readonly decoder: Decoder;
  readonly device: Device;
  readonly #plans: StepPlans;
  readonly #free: number[] = [];
  #states: ModelState | undefined;
  #isDisposed = false;

  constructor(decoder: Decoder, device: Device) {
    this.decoder = decoder;
    this.device = device;
    this.#plans = new StepPlans(decoder, device);
  }

  /** The states of all sequences. */
  get states(): ModelState {
    this.check();
    this.#states ??= this.decoder.createState(this.device, 1);
    return this.#states;
  }

  /** A slot nobody uses, made new. */
  takeSlot(): number {
    const isFirst = this.#states === undefined;
    const { states } = this;
    if (isFirst) this.#free.push(0);
    if (this.#free.length === 0) {
      const from = states.slots;
      states.addSlots(from);
      for (let slot = states.slots - 1; slot >= from; slot--) this.#free.push(slot);
    }
    const slot = this.#free.pop()!;
    states.reset(slot);
    return slot;
  }

  /** Gives a slot back. */
  giveSlot(slot: number): void {
    this.#free.push(slot);
  }

  /** Slots in use. */
  get taken(): number {
    return (this.#states?.slots ?? 0) - this.#free.length;
  }

  /**
   * Feeds `length` tokens to each of several sequences and returns the logits after the last, a row for each.
   *
   * Single tokens run from a plan: everything between the tokens and the logits is noted down at the second step of so
   * many rows, and done again from then on.
   *
   * @param ids `[slots.length · length]`, row by row.
   * @throws ConfigError where a slot is named twice, ids are missing or outside the vocabulary.
   */
  advance(slots: readonly number[], ids: Int32Array, length = 1): Float32Array[] {
    this.checkIds(slots, ids, length);
    if (slots.length === 0) return [];
    return this.rows(
      length === 1 ? this.#plans.step(this.states, slots, ids) : this.forward(slots, ids, length, true),
    );
  }

  /** The same with the logits after every token, `slots.length · length` of them, row by row. */
  advanceEach(slots: readonly number[], ids: Int32Array, length: number): Float32Array[] {
    this.checkIds(slots, ids, length);
    return slots.length === 0 ? [] : this.rows(this.forward(slots, ids, length, false));
  }

  private rows(logits: Float32Array): Float32Array[] {
    const { vocabularySize } = this.decoder.config;
    return Array.from({ length: logits.length / vocabularySize }, (_, row) =>
      logits.subarray(row * vocabularySize, (row + 1) * vocabularySize),
    );
  }

  private forward(
    slots: readonly number[],
    ids: Int32Array,
    length: number,
    lastOnly: boolean,
  ): Float32Array {
    const { device, decoder, states } = this;
    return scope(device, () =>
      noGrad(() => {
        const tokens = tensor(device, ids, [slots.length, length], { dtype: "int32" });
        const context = { state: { states, slots }, lastOnly, checked: true };
        const { logits } = decoder.forward(tokens, context);
        return Float32Array.from(logits.dataSync());
      }),
    );
  }

  private checkIds(slots: readonly number[], ids: Int32Array, length: number): void {
    this.check();
    if (ids.length !== slots.length * length) {
      throw new ConfigError(
        `[advance] ids are those of all rows: expected ${slots.length} · ${length}, got ${ids.length}`,
      );
    }
    const { vocabularySize } = this.decoder.config;
    for (let i = 0; i < ids.length; i++) {
      if (ids[i]! >= 0 && ids[i]! < vocabularySize) continue;
      throw new ConfigError(`[advance] ids are 0 to ${vocabularySize - 1}, got ${ids[i]} at ${i}`);
    }
  }

  /** Frees states and weights. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#plans.dispose();
    this.#states?.dispose();
    this.decoder.dispose();
  }

  private check(): void {
    if (this.#isDisposed) throw new DisposedError("[model] the model was disposed");
  }
}
