import type { Tensor } from "../autograd/tensor.ts";
import { Embedding } from "../nn/embedding.ts";
import { normalInit } from "../nn/init.ts";
import { Module } from "../nn/module.ts";
import { type Norm, norm } from "../nn/norm.ts";
import { Positions } from "../nn/positions.ts";
import type { Block } from "./block.ts";
import { buildBlocks, normOptionsOf, throughBlocks } from "./blocks.ts";
import type { EncoderConfig } from "./config.ts";
import type { ModelContext } from "./decoder.ts";
import { placesOf } from "./places.ts";

/** What a forward pass of an encoder takes beside its tokens. */
export type EncoderContext = Pick<ModelContext, "training" | "random" | "mask" | "cuSeqlens" | "recompute">;

const who = "encoder";

/**
 * An encoder: every token sees all others, by the forms of mechanisms that are not causal.
 *
 * hidden = norm(block_L(… block_1(E[tokens] + positions))), the blocks those of `Decoder`. Padding, on whichever side of
 * a row, is taken out before the first block: no token sees it, no position counts it, no work is spent on it.
 *
 * Cost: that of its mechanisms; linear in T for linear, performer, cosine, linformer and nystrom.
 *
 * @throws ConfigError for sizes that make no model, or a mechanism that is causal only (with those that are not).
 * @example
 * const encoder = new Encoder({ vocabularySize: 257, width: 16, layers: 2, heads: 2, pattern: ["linear"] });
 * initialize(encoder, device, random);
 * const { hidden } = encoder.forward(tokens);
 * console.log(hidden.shape); // [1, 6, 16]
 */
export class Encoder extends Module {
  readonly embedding: Embedding;
  readonly positions: Positions;
  readonly blocks: readonly Block[];
  readonly norm: Norm;
  readonly #config: EncoderConfig;

  constructor(config: EncoderConfig) {
    super();
    this.#config = config;
    const { vocabularySize, width } = config;
    this.embedding = new Embedding(vocabularySize, width, normalInit(config.initDeviation ?? 0.02));
    this.positions = new Positions(config.positions ?? { kind: "none" }, width);
    this.blocks = buildBlocks(config, { who, causal: false });
    this.norm = norm(width, normOptionsOf(config));
  }

  get config(): EncoderConfig {
    return this.#config;
  }

  /** `tokens [B, T] int32` → `hidden [B, T, D]`, and the balance loss of experts where there are some. */
  forward(tokens: Tensor, context: EncoderContext = {}): { hidden: Tensor; balance: Tensor | undefined } {
    const { training = false, ...rest } = context;
    const { positions } = placesOf(who, tokens, context);
    const embedded = this.positions.forward(this.embedding.forward(tokens), positions);
    const { x, balance } = throughBlocks(who, this.blocks, embedded, { ...rest, training, causal: false });
    return { hidden: this.norm.forward(x), balance };
  }
}
