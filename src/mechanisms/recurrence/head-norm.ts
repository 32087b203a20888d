import type { Tensor } from "../../autograd/tensor.ts";
import { onesInit } from "../../nn/init.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { type GatedRmsNormOptions, gatedRmsNorm, rmsNorm } from "../../ops/norm/index.ts";

/** Options of `HeadNorm`: groups of the last axis, and what its gate passes through and when. */
export type HeadNormOptions = Pick<GatedRmsNormOptions, "groups" | "activation" | "order">;

/**
 * o / √(mean o² + eps) · weight along the last axis, times the activation of a gate where there is one (silu unless
 * given): what brings the outputs of a recurrence to one size, head by head.
 */
export class HeadNorm extends Module {
  readonly weight: Parameter;
  readonly #options: GatedRmsNormOptions;

  constructor(width: number, eps: number, options: HeadNormOptions = {}) {
    super();
    this.weight = new Parameter([width], { init: onesInit, decays: false });
    this.#options = { eps, ...options };
  }

  /** `o [..., V]`, `gate [..., V]` → `[..., V]`. */
  forward(o: Tensor, gate?: Tensor): Tensor {
    const { value } = this.weight;
    return gate === undefined
      ? rmsNorm(o, value, this.#options)
      : gatedRmsNorm(o, gate, value, this.#options);
  }
}
