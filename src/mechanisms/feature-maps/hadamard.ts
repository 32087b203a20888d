import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { Module } from "../../nn/module.ts";
import { multiply } from "../../ops/arithmetic/index.ts";

/** A learned map: (W₁x + b₁)·(W₂x + b₂), channel by channel, one pair of matrices for all heads. */
export class HadamardMap extends Module {
  readonly layer1: Linear;
  readonly layer2: Linear;

  constructor(keyWidth: number) {
    super();
    this.layer1 = new Linear(keyWidth, keyWidth, { bias: true });
    this.layer2 = new Linear(keyWidth, keyWidth, { bias: true });
  }

  /** `x [B,T,H,K]` → `[B,T,H,K]`. */
  forward(x: Tensor): Tensor {
    return multiply(this.layer1.forward(x), this.layer2.forward(x));
  }
}
