import type { Tensor } from "../autograd/tensor.ts";
import type { Layer, LayerContext } from "../mechanisms/layer.ts";
import type { FeedForward } from "../nn/feed-forward.ts";
import { Module } from "../nn/module.ts";
import type { Norm } from "../nn/norm.ts";
import { add } from "../ops/arithmetic/index.ts";
import { dropout } from "../ops/dropout/index.ts";
import { scale } from "../ops/scale/index.ts";
import type { ResidualConfig } from "./config.ts";

const plain: ResidualConfig = { alpha: 1, beta: 1 };

/** What a block is made of. */
export interface BlockParts {
  readonly mixerNorm: Norm;
  readonly mixer: Layer;
  /** Reads the memory, in decoders that have one. */
  readonly crossNorm: Norm | undefined;
  readonly cross: Layer | undefined;
  readonly feedForwardNorm: Norm | undefined;
  readonly feedForward: FeedForward | undefined;
  readonly mixerResidual: ResidualConfig | undefined;
  readonly feedForwardResidual: ResidualConfig | undefined;
  readonly dropout: number;
}

/**
 * One layer of a model: x ← x + mixer(norm x), then x ← x + cross(norm x, memory) where it reads a memory, then
 * x ← x + feedForward(norm x).
 */
export class Block extends Module {
  readonly mixerNorm: Norm;
  readonly mixer: Layer;
  readonly crossNorm: Norm | undefined;
  readonly cross: Layer | undefined;
  readonly feedForwardNorm: Norm | undefined;
  readonly feedForward: FeedForward | undefined;
  readonly #residual: readonly [ResidualConfig, ResidualConfig];
  readonly #dropout: number;

  constructor(parts: BlockParts) {
    super();
    this.mixerNorm = parts.mixerNorm;
    this.mixer = parts.mixer;
    this.crossNorm = parts.crossNorm;
    this.cross = parts.cross;
    this.feedForwardNorm = parts.feedForwardNorm;
    this.feedForward = parts.feedForward;
    this.#residual = [parts.mixerResidual ?? plain, parts.feedForwardResidual ?? plain];
    this.#dropout = parts.dropout;
  }

  /** `x [B, T, D]` → `[B, T, D]`, and the load-balancing loss of its experts where it has some. */
  forward(x: Tensor, context: LayerContext): { x: Tensor; balance: Tensor | undefined } {
    const { memory, memoryMask, ...own } = context;
    const mixed = this.mixerNorm.forward(x);
    let y = join(x, mixed, this.drop(this.mixer.forward(mixed, own), own), this.#residual[0]);
    if (this.cross !== undefined && this.crossNorm !== undefined) {
      const { training, random, mask } = own;
      const reading: LayerContext = {
        ...{ training, causal: false },
        ...(memory && { memory }),
        ...(memoryMask && { memoryMask }),
        ...(random && { random }),
        ...(mask && { mask }),
      };
      y = add(y, this.drop(this.cross.forward(this.crossNorm.forward(y), reading), own));
    }
    if (this.feedForward === undefined || this.feedForwardNorm === undefined)
      return { x: y, balance: undefined };
    const normed = this.feedForwardNorm.forward(y);
    const { y: fed, balance } = this.feedForward.forward(normed, context.training);
    return { x: join(y, normed, this.drop(fed, own), this.#residual[1]), balance };
  }

  private drop(x: Tensor, { training, random }: LayerContext): Tensor {
    if (!training || this.#dropout === 0 || random === undefined) return x;
    return dropout(x, { p: this.#dropout, seed: Math.floor(random.next() * 2 ** 48) });
  }
}

function join(x: Tensor, normed: Tensor, branch: Tensor, { alpha, beta, fromNorm }: ResidualConfig): Tensor {
  const base = fromNorm ? normed : x;
  return add(alpha === 1 ? base : scale(base, alpha), beta === 1 ? branch : scale(branch, beta));
}
