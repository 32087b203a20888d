import { isRecording } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import { linearPacked, matmul, type PackedWeights, packWeights } from "../ops/matmul/index.ts";
import { fanInInit, type Init, zerosInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** Options of `Linear`. */
export interface LinearOptions {
  readonly bias?: boolean;
  /** Uniform on ±1/√in unless given. */
  readonly init?: Init;
  readonly biasInit?: Init;
}

/**
 * y = x·Wᵀ + b with the weight `[out, in]` as files hold it.
 *
 * Outside training the weight is packed once and kept; a row's result has the same bits either way.
 */
export class Linear extends Module {
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;
  readonly #packed: { weights: PackedWeights | undefined; version: number } = {
    weights: undefined,
    version: -1,
  };

  constructor(inputs: number, outputs: number, options: LinearOptions = {}) {
    super();
    this.weight = new Parameter([outputs, inputs], { init: options.init ?? fanInInit() });
    this.bias = options.bias
      ? new Parameter([outputs], { init: options.biasInit ?? zerosInit, decays: false })
      : undefined;
  }

  /** `x [..., in]` → `[..., out]`. */
  forward(x: Tensor): Tensor {
    const bias = this.bias?.value;
    if (isRecording()) {
      return matmul(x, this.weight.value, { transposeB: true, ...(bias === undefined ? {} : { bias }) });
    }
    return linearPacked(x, this.packed(), bias);
  }

  override dispose(): void {
    super.dispose();
    this.#packed.weights?.panels.dispose();
    this.#packed.weights = undefined;
  }

  private packed(): PackedWeights {
    const { weights, version } = this.#packed;
    if (weights !== undefined && version === this.weight.version) return weights;
    weights?.panels.dispose();
    const fresh = packWeights(this.weight.value);
    this.#packed.weights = fresh;
    this.#packed.version = this.weight.version;
    return fresh;
  }
}
