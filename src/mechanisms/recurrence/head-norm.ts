import type { Tensor } from "../../autograd/tensor.ts";
import { onesInit } from "../../nn/init.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { sigmoid, silu, sqrt, square } from "../../ops/activation/index.ts";
import { divide, multiply } from "../../ops/arithmetic/index.ts";
import { mean } from "../../ops/reduce/index.ts";
import { scale } from "../../ops/scale/index.ts";

const gates = { silu, sigmoid } as const;

/**
 * o / √(mean o² + eps) · weight along the last axis, times the activation of a gate where there is one: what brings the
 * outputs of a recurrence to one size, head by head.
 */
export class HeadNorm extends Module {
  readonly weight: Parameter;
  readonly eps: number;
  readonly activation: keyof typeof gates;

  constructor(width: number, eps: number, activation: keyof typeof gates = "silu") {
    super();
    this.weight = new Parameter([width], { init: onesInit, decays: false });
    this.eps = eps;
    this.activation = activation;
  }

  /** `o [..., V]`, `gate [..., V]` → `[..., V]`. */
  forward(o: Tensor, gate?: Tensor): Tensor {
    const size = sqrt(scale(mean(square(o), { axes: -1, keepDims: true }), 1, this.eps));
    const normed = multiply(divide(o, size), this.weight.value);
    return gate === undefined ? normed : multiply(normed, gates[this.activation](gate));
  }
}
