import type { Tensor } from "../autograd/tensor.ts";
import { checkWord } from "../errors.ts";
import { layerNorm, rmsNorm } from "../ops/norm/index.ts";
import { onesInit, zerosInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** A norm as data. */
export interface NormOptions {
  readonly kind?: "rms" | "layer";
  readonly eps?: number;
  /** Weigh by 1 + w with w around 0. */
  readonly zeroCentered?: boolean;
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
  readonly zeroCentered: boolean;

  constructor(width: number, options: Omit<NormOptions, "kind"> = {}) {
    super();
    this.eps = options.eps ?? 1e-5;
    this.zeroCentered = options.zeroCentered ?? false;
    this.weight = new Parameter([width], { init: this.zeroCentered ? zerosInit : onesInit, decays: false });
  }

  forward(x: Tensor): Tensor {
    return rmsNorm(x, this.weight.value, { eps: this.eps, zeroCentered: this.zeroCentered });
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
    return layerNorm(x, this.weight.value, this.bias.value, { eps: this.eps });
  }
}

/** The norm of a width. */
export function norm(width: number, options: NormOptions = {}): Norm {
  const eps = options.eps ?? 1e-5;
  checkWord("norm", "kind", options.kind, ["rms", "layer"]);
  if (options.kind === "layer") return new LayerNorm(width, { eps });
  return new RmsNorm(width, { eps, zeroCentered: options.zeroCentered ?? false });
}
