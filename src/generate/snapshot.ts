import { copyInto } from "../autograd/move.ts";
import { empty, type Tensor } from "../autograd/tensor.ts";
import type { ModelState } from "../models/state.ts";

/** The state of one sequence, kept apart from the slots: caches at the length they have, and nothing more. */
export class Snapshot {
  readonly #states: ModelState;
  readonly #parts = new Map<string, Tensor>();
  readonly #tokens: number;

  constructor(states: ModelState, slot: number) {
    this.#states = states;
    this.#tokens = states.tokens(slot);
    for (const [name, part] of states.partsOf(slot)) {
      const own = empty(part.device, part.shape, { dtype: part.dtype, persistent: true });
      copyInto(own, part);
      this.#parts.set(name, own);
    }
  }

  /** Bytes it holds on the device. */
  get bytes(): number {
    let sum = 0;
    for (const { size } of this.#parts.values()) sum += 4 * size;
    return sum;
  }

  /** Makes the sequence of a slot continue from here. */
  putInto(slot: number): void {
    this.#states.place(slot, this.#tokens);
    for (const [name, part] of this.#states.partsOf(slot)) copyInto(part, this.#parts.get(name)!);
  }

  /** Gives its memory back. */
  dispose(): void {
    for (const part of this.#parts.values()) part.dispose();
    this.#parts.clear();
  }
}
