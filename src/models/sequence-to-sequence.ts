import type { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import { Module } from "../nn/module.ts";
import { add } from "../ops/arithmetic/index.ts";
import { withBalance } from "./blocks.ts";
import type { DecoderConfig, EncoderConfig } from "./config.ts";
import { Decoder, type ModelContext } from "./decoder.ts";
import { Encoder, type EncoderContext } from "./encoder.ts";
import type { ModelState } from "./state.ts";

/** An encoder and a decoder that reads it, as data. */
export interface SequenceToSequenceConfig {
  readonly encoder: EncoderConfig;
  /** `cross` is softmax unless given. */
  readonly decoder: DecoderConfig;
}

/** What a forward pass takes beside source and tokens. */
export interface SequenceToSequenceContext
  extends Pick<ModelContext, "training" | "random" | "recompute" | "mask"> {
  /** int32 `[B, Ts]`, 1 for tokens of the source and 0 for its padding. */
  readonly sourceMask?: Tensor;
}

/**
 * An encoder and a decoder joined by cross-attention (Attention is all you need, arXiv 1706.03762v7, section 3.1).
 *
 * Every block of the decoder reads the encoder's output. `decoder.cross` may be any mechanism that takes a memory:
 * softmax, linear, performer or cosine.
 *
 * @throws ConfigError where the widths of the two differ, or what `Encoder` and `Decoder` refuse.
 * @example
 * const half = { vocabularySize: 16, width: 16, layers: 1, heads: 2 };
 * const translator = new SequenceToSequence({
 *   encoder: { ...half, pattern: ["softmax"] },
 *   decoder: { ...half, pattern: ["gated-delta"] },
 * });
 * initialize(translator, device, random);
 * console.log(translator.forward(tokens, tokens).logits.shape); // [1, 6, 16]
 */
export class SequenceToSequence extends Module {
  readonly encoder: Encoder;
  readonly decoder: Decoder;

  constructor({ encoder, decoder }: SequenceToSequenceConfig) {
    super();
    if (encoder.width !== decoder.width) {
      throw new ConfigError(
        `[sequence to sequence] the decoder reads what the encoder gives: expected equal widths, got ${encoder.width} and ${decoder.width}`,
      );
    }
    this.encoder = new Encoder(encoder);
    this.decoder = new Decoder({ ...decoder, cross: decoder.cross ?? "softmax" });
  }

  /** `source [B, Ts] int32` → what the decoder reads, `[B, Ts, D]`. */
  encode(source: Tensor, context: EncoderContext = {}): { memory: Tensor; balance: Tensor | undefined } {
    const { hidden, balance } = this.encoder.forward(source, context);
    return { memory: hidden, balance };
  }

  /** Room for the carried state of `slots` sequences of the decoder. */
  createState(device: Device, slots = 1): ModelState {
    return this.decoder.createState(device, slots);
  }

  /** `source [B, Ts]`, `tokens [B, T]` int32 → logits `[B, T, vocabulary]`, and the balance losses added up. */
  forward(
    source: Tensor,
    tokens: Tensor,
    context: SequenceToSequenceContext = {},
  ): { logits: Tensor; balance: Tensor | undefined } {
    const { memory, reading, balance } = this.read(source, context);
    const decoded = this.decoder.forward(tokens, { ...reading, memory });
    const both = [balance, decoded.balance].filter((part) => part !== undefined);
    return { logits: decoded.logits, balance: both.length === 2 ? add(both[0]!, both[1]!) : both[0] };
  }

  /**
   * Mean cross-entropy of `targets [B, T] int32` in nats, targets of −100 not counted, with the weighted balance losses
   * of both halves added.
   */
  loss(source: Tensor, tokens: Tensor, targets: Tensor, context: SequenceToSequenceContext = {}): Tensor {
    const { memory, reading, balance } = this.read(source, context);
    const loss = this.decoder.loss(tokens, targets, { ...reading, memory });
    return withBalance(loss, balance, this.encoder.config);
  }

  private read(
    source: Tensor,
    { sourceMask, mask, ...shared }: SequenceToSequenceContext,
  ): { memory: Tensor; reading: ModelContext; balance: Tensor | undefined } {
    const { memory, balance } = this.encode(source, { ...shared, ...(sourceMask && { mask: sourceMask }) });
    const reading = { ...shared, ...(mask && { mask }), ...(sourceMask && { memoryMask: sourceMask }) };
    return { memory, reading, balance };
  }
}
