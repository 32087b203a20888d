import { isRecording } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { StepPlaces } from "../mechanisms/layer.ts";
import { Embedding } from "../nn/embedding.ts";
import { normalInit } from "../nn/init.ts";
import { Linear, PackedCopy } from "../nn/linear.ts";
import { Module } from "../nn/module.ts";
import { type Norm, norm } from "../nn/norm.ts";
import { Positions } from "../nn/positions.ts";
import { add } from "../ops/arithmetic/index.ts";
import { crossEntropy } from "../ops/cross-entropy/index.ts";
import { embedding } from "../ops/embedding/index.ts";
import { linearPacked, matmul } from "../ops/matmul/index.ts";
import { reshape } from "../ops/reshape/index.ts";
import { slice } from "../ops/split/index.ts";
import type { Random } from "../tensor/random.ts";
import type { Block } from "./block.ts";
import { buildBlocks, normOptionsOf, throughBlocks, withBalance } from "./blocks.ts";
import type { DecoderConfig } from "./config.ts";
import { integers, placesOf } from "./places.ts";
import { ModelState } from "./state.ts";

/** What a forward pass of a model takes beside its tokens. */
export interface ModelContext {
  readonly training?: boolean;
  readonly random?: Random;
  /** Carried state and the slots that the rows belong to. */
  readonly state?: {
    readonly states: ModelState;
    readonly slots: readonly number[];
    /** The slots as int32 `[B]`, where they are on the device already. */
    readonly rows?: Tensor;
    /** Where the tokens go, where single ones are fed and this is on the device already. */
    readonly places?: StepPlaces;
  };
  /** Tokens are known to be in the vocabulary: outside training they are then not read back to check them. */
  readonly checked?: boolean;
  /** int32 `[B, T]`, 1 for tokens and 0 for padding, on whichever side of a row. */
  readonly mask?: Tensor;
  /** int32 `[N+1]`, sequences packed in a batch of 1. */
  readonly cuSeqlens?: Tensor;
  /** What the blocks of a decoder with `cross` read, `[B, Tm, D]`, such as the output of an encoder. */
  readonly memory?: Tensor;
  /** int32 `[B, Tm]`, 1 for tokens of the memory and 0 for its padding. */
  readonly memoryMask?: Tensor;
  /** Added to the embeddings of the tokens, `[B, T, D]`. */
  readonly beside?: Tensor;
  /** Logits of every sequence's last token only. */
  readonly lastOnly?: boolean;
  /** Each layer keeps its input alone and computes the rest again in the backward pass. */
  readonly recompute?: boolean;
}

const who = "decoder";

/**
 * One decoder whose layers follow a pattern of mechanisms.
 *
 * logits = W_out norm(block_L(… block_1(E[tokens] + positions))), blocks pre-norm. Weights are declared by the
 * constructor and allocated by `initialize` or by loading a file. With `cross` every block also reads a memory.
 *
 * @throws ConfigError for a pattern or sizes that make no model.
 * @example
 * const model = new Decoder({ vocabularySize: 257, width: 64, layers: 2, heads: 2, pattern: ["gated-delta"] });
 */
export class Decoder extends Module {
  readonly embedding: Embedding;
  readonly positions: Positions;
  readonly blocks: readonly Block[];
  readonly norm: Norm;
  readonly head: Linear | undefined;
  readonly #config: DecoderConfig;
  readonly #tied: PackedCopy;

  constructor(config: DecoderConfig) {
    super();
    this.#config = config;
    const { vocabularySize, width } = config;
    const init = normalInit(config.initDeviation ?? 0.02);
    this.embedding = new Embedding(vocabularySize, width, init);
    this.positions = new Positions(config.positions ?? { kind: "none" }, width);
    this.blocks = buildBlocks(config, { who, causal: true }, config.cross);
    this.norm = norm(width, normOptionsOf(config));
    this.#tied = new PackedCopy(this.embedding.weight);
    this.head = config.tied ? undefined : new Linear(width, vocabularySize, { init, isMap: false });
  }

  get config(): DecoderConfig {
    return this.#config;
  }

  /** The mixing layers, first to last. */
  get mixers(): readonly Block["mixer"][] {
    return this.blocks.map((block) => block.mixer);
  }

  /** Room for the carried state of `slots` sequences. */
  createState(device: Device, slots = 1): ModelState {
    for (const [i, mixer] of this.mixers.entries()) {
      if (mixer.carriesState) continue;
      throw new ConfigError(
        `[decoder] the mixer of layer ${i} carries no state: it sees whole sequences only`,
      );
    }
    return new ModelState(device, this.mixers, slots);
  }

  /**
   * `tokens [B, T] int32` → logits `[B, T, vocabulary]`, and the balance loss. With `lastOnly` those of the last token of
   * every sequence, `[B, 1, vocabulary]`.
   */
  forward(tokens: Tensor, context: ModelContext = {}): { logits: Tensor; balance: Tensor | undefined } {
    const { features, balance } = this.features(tokens, context);
    return { logits: this.output(features), balance };
  }

  /** What the output layer sees of the same call: `[B, T, D]`, or `[B, 1, D]` with `lastOnly`, and the balance loss. */
  features(tokens: Tensor, context: ModelContext = {}): { features: Tensor; balance: Tensor | undefined } {
    this.checkMemory(context);
    const { state, training = false, lastOnly, beside, checked, ...rest } = context;
    const states = state?.states.view(state.slots, tokens.shape[1]!, state);
    // Whoever asks how long sequences are keeps the call from being noted down.
    const seen = this.positions.areAdded && state?.places === undefined ? states?.[0]?.seen : undefined;
    const places = placesOf(who, tokens, context, seen);
    const own = checked && !isRecording() ? this.embedding.take(tokens) : this.embedding.forward(tokens);
    const whole = beside === undefined ? own : add(own, beside);
    const embedded =
      state?.places === undefined
        ? this.positions.forward(whole, places.positions)
        : this.positions.forwardAt(whole, state.places.positions, state.places.last);
    const { x, balance } = throughBlocks(who, this.blocks, embedded, {
      ...rest,
      ...{ training, causal: true, states },
    });
    if (state !== undefined) state.states.advance(state.slots, places.counts);
    return { features: this.norm.forward(lastOnly ? lastOf(x, context, places.last) : x), balance };
  }

  /**
   * Mean cross-entropy of the next tokens in nats, with the weighted balance loss of experts added.
   * `tokens`, `targets [B, T] int32`; targets of −100 do not count.
   */
  loss(tokens: Tensor, targets: Tensor, context: ModelContext = {}): Tensor {
    const { logits, balance } = this.forward(tokens, context);
    const rows = reshape(logits, [-1, this.#config.vocabularySize]);
    const loss = crossEntropy(rows, reshape(targets, [-1]), { ignoreIndex: -100 });
    return withBalance(loss, balance, this.#config);
  }

  override dispose(): void {
    super.dispose();
    this.#tied.dispose();
  }

  private output(x: Tensor): Tensor {
    if (this.head !== undefined) return this.head.forward(x);
    if (!isRecording()) return linearPacked(x, this.#tied.get());
    return matmul(x, this.embedding.weight.value, { transposeB: true });
  }

  private checkMemory({ memory, cuSeqlens }: ModelContext): void {
    if ((memory === undefined) !== (this.#config.cross === undefined)) {
      throw new ConfigError(
        `[decoder] a memory goes with a cross mixer: expected ${this.#config.cross === undefined ? "no memory" : "a memory"}, got ${memory === undefined ? "none" : "one"}`,
        "The option cross of the configuration names the mixer that reads the memory.",
      );
    }
    if (memory !== undefined && cuSeqlens !== undefined) {
      throw new ConfigError(
        "[decoder] packed sequences have no memory of their own: expected cuSeqlens or memory, got both",
        "Give every sequence a row of its own and a mask.",
      );
    }
  }
}

/** `x [B, T, D]` at the last token of every sequence, `[N, 1, D]`. */
function lastOf(x: Tensor, { mask, cuSeqlens }: ModelContext, last: readonly number[]): Tensor {
  if (mask === undefined && cuSeqlens === undefined) return slice(x, 1, -1);
  const width = x.shape[2]!;
  return reshape(embedding(integers(x, last), reshape(x, [-1, width])), [last.length, 1, width]);
}
