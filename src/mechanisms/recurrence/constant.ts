import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";

/** Fixed numbers that a layer needs on whatever device it runs: written once, kept until disposed. */
export class Constant {
  readonly values: readonly number[];
  #held: Tensor | undefined;

  constructor(values: readonly number[]) {
    this.values = values;
  }

  /** The numbers as a tensor `[n]`. */
  on(device: Device): Tensor {
    if (this.#held?.device !== device) {
      this.dispose();
      this.#held = tensor(device, this.values, [this.values.length], { persistent: true });
    }
    return this.#held!;
  }

  dispose(): void {
    this.#held?.dispose();
    this.#held = undefined;
  }
}
