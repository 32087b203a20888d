import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { Decoder } from "../models/decoder.ts";
import type { ModelState } from "../models/state.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { Session } from "./session.ts";

/** A decoder with its tokenizer: what sessions are opened on. */
export class LanguageModel {
  readonly decoder: Decoder;
  readonly tokenizer: Tokenizer;
  readonly device: Device;
  #states: ModelState | undefined;
  readonly #free: number[] = [];

  constructor(decoder: Decoder, tokenizer: Tokenizer, device: Device) {
    const { vocabularySize } = decoder.config;
    if (tokenizer.vocabularySize > vocabularySize) {
      throw new ConfigError(
        `[LanguageModel] the tokenizer has more ids than the model: expected at most ${vocabularySize}, got ${tokenizer.vocabularySize}`,
      );
    }
    this.decoder = decoder;
    this.tokenizer = tokenizer;
    this.device = device;
  }

  /**
   * A conversation of its own: a state of fixed size, where the model's layers allow it.
   *
   * @example
   * const session = model.session();
   * for await (const { text } of session.generate({ prompt: "Call me", maxNewTokens: 20 })) console.log(text);
   */
  session(): Session {
    return new Session(this, this.takeSlot());
  }

  /** The states of all sessions. */
  get states(): ModelState {
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

  /**
   * Feeds `length` tokens to each of several sequences and returns the logits after the last, a row for each.
   *
   * @param ids `[slots.length · length]`, row by row.
   */
  advance(slots: readonly number[], ids: Int32Array, length: number): Float32Array[] {
    const { device, decoder } = this;
    const { vocabularySize } = decoder.config;
    return scope(device, () =>
      noGrad(() => {
        const tokens = tensor(device, ids, [slots.length, length], { dtype: "int32" });
        const { logits } = decoder.forward(tokens, { state: { states: this.states, slots }, lastOnly: true });
        const values = Float32Array.from(logits.dataSync());
        return slots.map((_, row) => values.subarray(row * vocabularySize, (row + 1) * vocabularySize));
      }),
    );
  }

  /** Frees states and weights. */
  dispose(): void {
    this.#states?.dispose();
    this.#states = undefined;
    this.decoder.dispose();
  }
}
