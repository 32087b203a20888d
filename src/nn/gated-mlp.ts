import type { Tensor } from "../autograd/tensor.ts";
import { checkWord } from "../errors.ts";
import { gelu } from "../ops/activation/index.ts";
import { multiply } from "../ops/arithmetic/index.ts";
import { swiglu } from "../ops/swiglu/index.ts";
import { Linear } from "./linear.ts";
import { Module } from "./module.ts";

const gatings = {
  silu: swiglu,
  gelu: (gate: Tensor, up: Tensor): Tensor => multiply(gelu(gate), up),
} as const;

/** The position-wise half of a block. */
export abstract class FeedForward extends Module {
  /** `x [B, T, D]` → `[B, T, D]`, and a load-balancing loss where there are experts. */
  abstract forward(x: Tensor, training: boolean): { y: Tensor; balance: Tensor | undefined };
}

/** down(act(gate x) ∘ up x) (GLU variants, arXiv 2002.05202v1, eq. 6). */
export class GatedMlp extends FeedForward {
  readonly gate: Linear;
  readonly up: Linear;
  readonly down: Linear;
  readonly #activation: "silu" | "gelu";

  constructor(width: number, hidden: number, activation: "silu" | "gelu" = "silu", bias = false) {
    super();
    checkWord("gatedMlp", "activation", activation, ["silu", "gelu"]);
    this.gate = new Linear(width, hidden, { bias });
    this.up = new Linear(width, hidden, { bias });
    this.down = new Linear(hidden, width, { bias });
    this.#activation = activation;
  }

  forward(x: Tensor): { y: Tensor; balance: Tensor | undefined } {
    const hidden = gatings[this.#activation](this.gate.forward(x), this.up.forward(x));
    return { y: this.down.forward(hidden), balance: undefined };
  }
}
