import type { Tensor } from "../../autograd/tensor.ts";
import { onesInit } from "../../nn/init.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { gatedRmsNorm, rmsNorm } from "../../ops/norm/index.ts";

/**
 * o / √(mean o² + eps) · weight along the last axis, times the activation of a gate where there is one: what brings the
 * outputs of a recurrence to one size, head by head.
 */
export class HeadNorm extends Module {
  readonly weight: Parameter;
  readonly eps: number;
  readonly activation: "silu" | "sigmoid";

  constructor(width: number, eps: number, activation: "silu" | "sigmoid" = "silu") {
    super();
    this.weight = new Parameter([width], { init: onesInit, decays: false });
    this.eps = eps;
    this.activation = activation;
  }

  /** `o [..., V]`, `gate [..., V]` → `[..., V]`. */
  forward(o: Tensor, gate?: Tensor): Tensor {
    const { eps, activation, weight } = this;
    if (gate === undefined) return rmsNorm(o, weight.value, { eps });
    return gatedRmsNorm(o, gate, weight.value, { eps, activation });
  }
}
