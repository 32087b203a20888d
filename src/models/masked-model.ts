import type { Tensor } from "../autograd/tensor.ts";
import { ConfigError } from "../errors.ts";
import { normalInit } from "../nn/init.ts";
import { Linear } from "../nn/linear.ts";
import { Module } from "../nn/module.ts";
import { crossEntropy } from "../ops/cross-entropy/index.ts";
import { embedding } from "../ops/embedding/index.ts";
import { matmul } from "../ops/matmul/index.ts";
import { reshape } from "../ops/reshape/index.ts";
import { withBalance } from "./blocks.ts";
import type { EncoderConfig } from "./config.ts";
import { Encoder, type EncoderContext } from "./encoder.ts";
import { integers } from "./places.ts";

/** A model that fills in hidden tokens, as data. */
export interface MaskedModelConfig extends EncoderConfig {
  /** The output layer shares the table of the input; true unless given. */
  readonly tied?: boolean;
}

/**
 * An encoder that says what stood at hidden places (BERT, arXiv 1810.04805v2, section 3.1): logits = W_out hidden.
 *
 * Its `encoder` has the names of a classifier's, so that weights learned here begin one there.
 *
 * @example
 * const masked = new MaskedModel({ vocabularySize: 258, width: 16, layers: 1, heads: 2, pattern: ["linear"] });
 * initialize(masked, device, random);
 * console.log(masked.forward(tokens).logits.shape); // [1, 6, 258]
 */
export class MaskedModel extends Module {
  readonly encoder: Encoder;
  readonly head: Linear | undefined;
  readonly #config: MaskedModelConfig;

  constructor(config: MaskedModelConfig) {
    super();
    const { tied = true, ...encoder } = config;
    this.#config = config;
    this.encoder = new Encoder(encoder);
    const init = normalInit(config.initDeviation ?? 0.02);
    this.head = tied ? undefined : new Linear(config.width, config.vocabularySize, { init });
  }

  get config(): MaskedModelConfig {
    return this.#config;
  }

  /** `tokens [B, T] int32` → logits `[B, T, vocabulary]`, and the balance loss. */
  forward(tokens: Tensor, context: EncoderContext = {}): { logits: Tensor; balance: Tensor | undefined } {
    const { hidden, balance } = this.encoder.forward(tokens, context);
    return { logits: this.output(hidden), balance };
  }

  /**
   * Mean cross-entropy of what is asked in nats, with the weighted balance loss of experts added. `targets [B, T] int32`
   * say what stood there; −100 asks nothing. Logits are computed where something is asked.
   *
   * @throws ConfigError when nothing is asked.
   */
  loss(tokens: Tensor, targets: Tensor, context: EncoderContext = {}): Tensor {
    const wanted = targets.dataSync();
    const asked: number[] = [];
    for (let row = 0; row < wanted.length; row++) if (wanted[row] !== -100) asked.push(row);
    if (asked.length === 0)
      throw new ConfigError(
        "[masked model] targets ask for nothing: expected one that is not -100, got none",
      );
    const { hidden, balance } = this.encoder.forward(tokens, context);
    const rows = embedding(integers(tokens, asked), reshape(hidden, [-1, this.#config.width]));
    const loss = crossEntropy(
      this.output(rows),
      integers(
        tokens,
        asked.map((row) => wanted[row]!),
      ),
    );
    return withBalance(loss, balance, this.#config);
  }

  private output(x: Tensor): Tensor {
    if (this.head !== undefined) return this.head.forward(x);
    return matmul(x, this.encoder.embedding.weight.value, { transposeB: true });
  }
}
