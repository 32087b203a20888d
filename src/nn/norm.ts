import type { Tensor } from "../autograd/tensor.ts";
import { sqrt, square } from "../ops/activation/index.ts";
import { add, divide, multiply, subtract } from "../ops/arithmetic/index.ts";
import { mean } from "../ops/reduce/index.ts";
import { scale } from "../ops/scale/index.ts";
import { onesInit, zerosInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** A norm as data. */
export interface NormOptions {
  readonly kind?: "rms" | "layer";
  readonly eps?: number;
  /** Weigh by 1 + w with w around 0. */
  readonly zeroCentred?: boolean;
}

/** Brings the last axis to unit size. */
export abstract class Norm extends Module {
  /** `x [..., D]` → the same shape. */
  abstract forward(x: Tensor): Tensor;
}

/** x / √(mean x² + eps) · w (arXiv 1910.07467v1, eq. 4). */
export class RmsNorm extends Norm {
  readonly weight: Parameter;
  readonly eps: number;
  readonly zeroCentred: boolean;

  constructor(width: number, options: Omit<NormOptions, "kind"> = {}) {
    super();
    this.eps = options.eps ?? 1e-5;
    this.zeroCentred = options.zeroCentred ?? false;
    this.weight = new Parameter([width], { init: this.zeroCentred ? zerosInit : onesInit, decays: false });
  }

  forward(x: Tensor): Tensor {
    const size = sqrt(scale(mean(square(x), { axes: -1, keepDims: true }), 1, this.eps));
    const weight = this.zeroCentred ? scale(this.weight.value, 1, 1) : this.weight.value;
    return multiply(divide(x, size), weight);
  }
}

/** (x − mean x) / √(var x + eps) · w + b (arXiv 1607.06450v1, eq. 4). */
export class LayerNorm extends Norm {
  readonly weight: Parameter;
  readonly bias: Parameter;
  readonly eps: number;

  constructor(width: number, options: { readonly eps?: number } = {}) {
    super();
    this.eps = options.eps ?? 1e-5;
    this.weight = new Parameter([width], { init: onesInit, decays: false });
    this.bias = new Parameter([width], { init: zerosInit, decays: false });
  }

  forward(x: Tensor): Tensor {
    const centred = subtract(x, mean(x, { axes: -1, keepDims: true }));
    const size = sqrt(scale(mean(square(centred), { axes: -1, keepDims: true }), 1, this.eps));
    return add(multiply(divide(centred, size), this.weight.value), this.bias.value);
  }
}

/** The norm of a width. */
export function norm(width: number, options: NormOptions = {}): Norm {
  const eps = options.eps ?? 1e-5;
  if (options.kind === "layer") return new LayerNorm(width, { eps });
  return new RmsNorm(width, { eps, zeroCentred: options.zeroCentred ?? false });
}
