import type { Tensor } from "../autograd/tensor.ts";
import { checkWord } from "../errors.ts";
import { gelu, relu } from "../ops/activation/index.ts";
import { Experts, type ExpertsOptions } from "./experts.ts";
import { FeedForward, GatedMlp } from "./gated-mlp.ts";
import { Linear } from "./linear.ts";

export { FeedForward, GatedMlp } from "./gated-mlp.ts";

/** A feed-forward as data. */
export type FeedForwardOptions =
  | { readonly kind: "none" }
  | {
      readonly kind: "gated";
      readonly width: number;
      readonly activation?: "silu" | "gelu";
      readonly bias?: boolean;
    }
  | {
      readonly kind: "plain";
      readonly width: number;
      readonly activation?: "gelu" | "relu";
      readonly bias?: boolean;
    }
  | ExpertsOptions;

const activations = { gelu, relu } as const;

/** down(act(up x)). */
export class Mlp extends FeedForward {
  readonly up: Linear;
  readonly down: Linear;
  readonly #activation: "gelu" | "relu";

  constructor(width: number, hidden: number, activation: "gelu" | "relu" = "gelu", bias = true) {
    super();
    checkWord("feedForward", "activation", activation, ["gelu", "relu"]);
    this.up = new Linear(width, hidden, { bias });
    this.down = new Linear(hidden, width, { bias });
    this.#activation = activation;
  }

  forward(x: Tensor): { y: Tensor; balance: Tensor | undefined } {
    return { y: this.down.forward(activations[this.#activation](this.up.forward(x))), balance: undefined };
  }
}

/** A mixture of experts as the feed-forward of a block. */
class ExpertFeedForward extends FeedForward {
  readonly experts: Experts;

  constructor(width: number, options: ExpertsOptions) {
    super();
    this.experts = new Experts(width, options);
  }

  forward(x: Tensor, training: boolean): { y: Tensor; balance: Tensor | undefined } {
    return this.experts.forward(x, training);
  }
}

/** The feed-forward of block `layer`; undefined where the model has none. */
export function feedForward(
  width: number,
  options: FeedForwardOptions,
  layer: number,
): FeedForward | undefined {
  checkWord("feedForward", "kind", options.kind, ["none", "gated", "plain", "experts"]);
  switch (options.kind) {
    case "none":
      return undefined;
    case "gated":
      return new GatedMlp(width, options.width, options.activation, options.bias);
    case "plain":
      return new Mlp(width, options.width, options.activation, options.bias);
    case "experts":
      if (layer < (options.denseLayers ?? 0)) return new GatedMlp(width, options.denseWidth ?? options.width);
      return new ExpertFeedForward(width, options);
  }
}
