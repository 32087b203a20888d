import { type Tensor, tensor } from "../autograd/tensor.ts";
import { ConfigError } from "../errors.ts";
import { normalInit } from "../nn/init.ts";
import { Linear } from "../nn/linear.ts";
import { Module } from "../nn/module.ts";
import { crossEntropy } from "../ops/cross-entropy/index.ts";
import { matmul } from "../ops/matmul/index.ts";
import { reshape } from "../ops/reshape/index.ts";
import { withBalance } from "./blocks.ts";
import type { EncoderConfig } from "./config.ts";
import { Encoder, type EncoderContext } from "./encoder.ts";
import { placesOf } from "./places.ts";

/** A classifier of texts, as data. */
export interface ClassifierConfig extends EncoderConfig {
  readonly classes: number;
  /** What of a text is classified: the mean of its tokens, or its first one. `mean` unless given. */
  readonly pooling?: "mean" | "first";
}

/**
 * An encoder that gives one of several labels to a whole text: logits = W · pool(hidden).
 *
 * The mean runs over a text's own tokens, padding left out.
 *
 * @throws ConfigError for fewer than two classes, or what `Encoder` refuses.
 * @example
 * const classifier = new Classifier({ vocabularySize: 257, width: 16, layers: 1, heads: 2, pattern: ["linear"], classes: 3 });
 * initialize(classifier, device, random);
 * console.log(classifier.forward(tokens).logits.shape); // [1, 3]
 */
export class Classifier extends Module {
  readonly encoder: Encoder;
  readonly head: Linear;
  readonly #config: ClassifierConfig;

  constructor(config: ClassifierConfig) {
    super();
    const { classes, pooling = "mean", ...encoder } = config;
    if (!Number.isInteger(classes) || classes < 2)
      throw new ConfigError(`[classifier] classes is a whole number >= 2, got ${classes}`);
    if (pooling !== "mean" && pooling !== "first")
      throw new ConfigError(`[classifier] pooling: expected mean or first, got ${String(pooling)}`);
    this.#config = config;
    this.encoder = new Encoder(encoder);
    const init = normalInit(config.initDeviation ?? 0.02);
    this.head = new Linear(config.width, classes, { bias: true, init });
  }

  get config(): ClassifierConfig {
    return this.#config;
  }

  /** `tokens [B, T] int32` → logits `[B, classes]` (`[N, classes]` of packed texts), and the balance loss. */
  forward(tokens: Tensor, context: EncoderContext = {}): { logits: Tensor; balance: Tensor | undefined } {
    const { hidden, balance } = this.encoder.forward(tokens, context);
    const pool = this.poolingWeights(tokens, context);
    const packed = context.cuSeqlens !== undefined;
    // [B, 1, T]·[B, T, D], or [1, N, T]·[1, T, D] for packed texts.
    const pooled = reshape(matmul(pool, hidden), [
      packed ? pool.shape[1]! : pool.shape[0]!,
      hidden.shape[2]!,
    ]);
    return { logits: this.head.forward(pooled), balance };
  }

  /** Mean cross-entropy of `labels [B] int32` in nats, with the weighted balance loss of experts added. */
  loss(tokens: Tensor, labels: Tensor, context: EncoderContext = {}): Tensor {
    const { logits, balance } = this.forward(tokens, context);
    return withBalance(crossEntropy(logits, labels), balance, this.#config);
  }

  /** What every token counts in what its text is pooled to. */
  private poolingWeights(tokens: Tensor, context: EncoderContext): Tensor {
    const [batch, time] = tokens.shape as [number, number];
    const { positions, counts } = placesOf("classifier", tokens, context);
    const isPacked = context.cuSeqlens !== undefined;
    const hidden = context.mask?.dataSync();
    const weights = new Float64Array(isPacked ? counts.length * time : batch * time);
    let sequence = -1;
    for (let row = 0; row < batch * time; row++) {
      if (hidden?.[row] === 0) continue;
      if (isPacked) {
        if (positions[row] === 0) sequence = nextWithTokens(counts, sequence);
      } else sequence = Math.floor(row / time);
      const at = isPacked ? sequence * time + row : row;
      if (this.#config.pooling === "first") weights[at] = positions[row] === 0 ? 1 : 0;
      else weights[at] = 1 / counts[sequence]!;
    }
    const { dtype } = this.head.weight.value;
    const shape = isPacked ? [1, counts.length, time] : [batch, 1, time];
    return tensor(tokens.device, weights, shape, { dtype });
  }
}

/** The sequence after one that has tokens at all. */
function nextWithTokens(counts: readonly number[], after: number): number {
  return counts.findIndex((count, n) => n > after && count > 0);
}
