import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { Decoder, ModelContext } from "../../models/decoder.ts";
import type { ModelState } from "../../models/state.ts";
import { allocateArray } from "../../tensor/dtype.ts";

/** The state that each row of a batch leaves for the row that continues it: truncated backpropagation through time. */
export class CarriedRows {
  readonly #states: ModelState;
  readonly #slots: readonly number[];
  readonly #seen: Tensor;
  readonly #device: Device;

  /** @throws ConfigError where a layer keeps a cache, which a long document would let grow without end. */
  constructor(model: Decoder, device: Device, rows: number) {
    const caches = model.mixers.findIndex(({ stateSpec }) =>
      Object.values(stateSpec).some(({ cache }) => cache),
    );
    if (caches >= 0) {
      throw new ConfigError(
        `[carry] layer ${caches} keeps every token it saw: expected layers whose state has one size`,
        "Use a pattern of recurrent mechanisms, or train without a carried state.",
      );
    }
    this.#device = device;
    this.#states = model.createState(device, rows);
    this.#slots = Array.from({ length: rows }, (_, row) => row);
    this.#seen = tensor(device, new Float32Array(rows), [rows], { persistent: true });
  }

  /** The state as a forward pass of `rows` rows takes it; they begin from nothing where `begins`. */
  context(rows: number, begins: boolean): NonNullable<ModelContext["state"]> {
    if (rows !== this.#slots.length) {
      throw new ConfigError(
        `[carry] a batch has a row for every state: expected ${this.#slots.length}, got ${rows}`,
      );
    }
    if (begins) this.reset();
    return { states: this.#states, slots: this.#slots };
  }

  /** Forgets everything. */
  reset(): void {
    for (const slot of this.#slots) this.#states.reset(slot);
  }

  /** Every part by name, for a run to keep. */
  get tensors(): Readonly<Record<string, Tensor>> {
    this.put(
      this.#seen,
      this.#slots.map((slot) => this.#states.tokens(slot)),
    );
    const parts: Record<string, Tensor> = { seen: this.#seen };
    for (const slot of this.#slots)
      for (const [name, part] of this.#states.partsOf(slot)) parts[`${slot}.${name}`] = part;
    return parts;
  }

  /** Goes on from kept values. */
  restore(kept: ReadonlyMap<string, Float32Array>): void {
    for (const [name, part] of Object.entries(this.tensors)) {
      const values = kept.get(name);
      if (values === undefined || values.length !== part.size) {
        throw new ConfigError(
          `[carry] the kept state belongs to another model or batch: ${name} holds ${part.size} values, got ${values?.length ?? "none"}`,
        );
      }
      this.put(part, values);
    }
    for (const [slot, count] of kept.get("seen")!.entries()) this.#states.place(slot, count);
  }

  dispose(): void {
    this.#states.dispose();
    this.#seen.dispose();
  }

  private put(part: Tensor, values: ArrayLike<number>): void {
    const typed = allocateArray(part.dtype, part.size);
    typed.set(values);
    this.#device.write(part.layout, typed);
  }
}
