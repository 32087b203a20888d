import { isRecording } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import { linearPacked, matmul, type PackedWeights, packWeights } from "../ops/matmul/index.ts";
import { fanInInit, type Init, zerosInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** A weight packed for rows that are not trained on: made when first asked for, and again after the weight changed. */
export class PackedCopy {
  readonly #weight: Parameter;
  #packed: PackedWeights | undefined;
  #version = -1;

  constructor(weight: Parameter) {
    this.#weight = weight;
  }

  get(): PackedWeights {
    if (this.#packed === undefined || this.#version !== this.#weight.version) {
      this.dispose();
      this.#packed = packWeights(this.#weight.value);
      this.#version = this.#weight.version;
    }
    return this.#packed;
  }

  dispose(): void {
    this.#packed?.panels.dispose();
    this.#packed = undefined;
  }
}

/** Options of `Linear`. */
export interface LinearOptions {
  readonly bias?: boolean;
  /** Uniform on ±1/√in unless given. */
  readonly init?: Init;
  readonly biasInit?: Init;
  /** False where the outputs are no activations but scores of classes; true unless given. */
  readonly isMap?: boolean;
}

/**
 * y = x·Wᵀ + b with the weight `[out, in]` as files hold it.
 *
 * Outside training the weight is packed once and kept; a row's result has the same bits either way.
 */
export class Linear extends Module {
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;
  readonly #packed: PackedCopy;

  constructor(inputs: number, outputs: number, options: LinearOptions = {}) {
    super();
    this.weight = new Parameter([outputs, inputs], {
      init: options.init ?? fanInInit(),
      isMap: options.isMap ?? true,
    });
    this.bias = options.bias
      ? new Parameter([outputs], { init: options.biasInit ?? zerosInit, decays: false })
      : undefined;
    this.#packed = new PackedCopy(this.weight);
  }

  /** `x [..., in]` → `[..., out]`. */
  forward(x: Tensor): Tensor {
    const bias = this.bias?.value;
    if (isRecording()) {
      return matmul(x, this.weight.value, { transposeB: true, ...(bias === undefined ? {} : { bias }) });
    }
    return linearPacked(x, this.#packed.get(), bias);
  }

  override dispose(): void {
    super.dispose();
    this.#packed.dispose();
  }
}
