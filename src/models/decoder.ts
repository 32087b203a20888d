import { recompute } from "../autograd/recompute.ts";
import { isRecording } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { LayerContext } from "../mechanisms/layer.ts";
import { Embedding } from "../nn/embedding.ts";
import { feedForward } from "../nn/feed-forward.ts";
import { normalInit } from "../nn/init.ts";
import { Linear } from "../nn/linear.ts";
import { Module } from "../nn/module.ts";
import { type Norm, norm } from "../nn/norm.ts";
import { Positions } from "../nn/positions.ts";
import { add } from "../ops/arithmetic/index.ts";
import { crossEntropy } from "../ops/cross-entropy/index.ts";
import { matmul } from "../ops/matmul/index.ts";
import { reshape } from "../ops/reshape/index.ts";
import { scale } from "../ops/scale/index.ts";
import { slice } from "../ops/split/index.ts";
import { Random } from "../tensor/random.ts";
import { Block } from "./block.ts";
import { type DecoderConfig, expandPattern, type LayerChoice } from "./config.ts";
import { ModelState } from "./state.ts";

/** What a forward pass of a model takes beside its tokens. */
export interface ModelContext {
  readonly training?: boolean;
  readonly random?: Random;
  /** Carried state and the slots that the rows belong to. */
  readonly state?: { readonly states: ModelState; readonly slots: readonly number[] };
  readonly mask?: Tensor;
  readonly cuSeqlens?: Tensor;
  /** Logits of the last token only. */
  readonly lastOnly?: boolean;
  /** Each layer keeps its input alone and computes the rest again in the backward pass. */
  readonly recompute?: boolean;
}

/**
 * One decoder whose layers follow a pattern of mechanisms.
 *
 * logits = W_out norm(block_L(… block_1(E[tokens] + positions))), blocks pre-norm. Weights are declared by the
 * constructor and allocated by `initialize` or by loading a file.
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

  constructor(config: DecoderConfig) {
    super();
    this.#config = config;
    const { vocabularySize, width, normEps = 1e-5 } = config;
    const deviation = config.initDeviation ?? 0.02;
    const normOptions = {
      kind: config.norm ?? "rms",
      eps: normEps,
      zeroCentered: config.zeroCentered ?? false,
    } as const;
    this.embedding = new Embedding(vocabularySize, width, normalInit(deviation));
    this.positions = new Positions(config.positions ?? { kind: "none" }, width);
    const shared = new Map<string, Module>();
    this.blocks = expandPattern(config).map((choice, i) => this.block(choice, i, normOptions, shared));
    this.norm = norm(width, normOptions);
    this.head = config.tied ? undefined : new Linear(width, vocabularySize, { init: normalInit(deviation) });
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

  /** `tokens [B, T] int32` → logits `[B, T, vocabulary]` (`[B, 1, vocabulary]` with `lastOnly`), and the balance loss. */
  forward(tokens: Tensor, context: ModelContext = {}): { logits: Tensor; balance: Tensor | undefined } {
    const [batch, time] = tokens.shape as [number, number];
    const { state } = context;
    const layerStates = state?.states.view(state.slots, time);
    const seen = layerStates?.[0]?.seen ?? new Array<number>(batch).fill(0);
    let x = this.positions.forward(this.embedding.forward(tokens), seen);
    let balance: Tensor | undefined;
    for (const [i, block] of this.blocks.entries()) {
      const layerContext: LayerContext = {
        training: context.training ?? false,
        causal: true,
        ...(layerStates === undefined ? {} : { state: layerStates[i]! }),
        ...(context.mask === undefined ? {} : { mask: context.mask }),
        ...(context.cuSeqlens === undefined ? {} : { cuSeqlens: context.cuSeqlens }),
        ...(context.random === undefined
          ? {}
          : { random: context.random.fork(`${context.random.stream} block ${i}`) }),
      };
      const result =
        context.recompute && isRecording() ? again(block, x, layerContext) : block.forward(x, layerContext);
      x = result.x;
      if (result.balance !== undefined)
        balance = balance === undefined ? result.balance : add(balance, result.balance);
    }
    if (state !== undefined) state.states.advance(state.slots, tokenCounts(context, time));
    const last = context.lastOnly ? slice(x, 1, -1) : x;
    return { logits: this.output(this.norm.forward(last)), balance };
  }

  /**
   * Mean cross-entropy of the next tokens in nats, with the weighted balance loss of experts added.
   * `tokens`, `targets [B, T] int32`; targets of −100 do not count.
   */
  loss(tokens: Tensor, targets: Tensor, context: ModelContext = {}): Tensor {
    const { logits, balance } = this.forward(tokens, context);
    const rows = reshape(logits, [-1, this.#config.vocabularySize]);
    const loss = crossEntropy(rows, reshape(targets, [-1]), { ignoreIndex: -100 });
    const { feedForward: kind } = this.#config;
    const weight = kind?.kind === "experts" ? (kind.balance ?? 0) : 0;
    return balance === undefined || weight === 0 ? loss : add(loss, scale(balance, weight));
  }

  private output(x: Tensor): Tensor {
    if (this.head !== undefined) return this.head.forward(x);
    return matmul(x, this.embedding.weight.value, { transposeB: true });
  }

  private block(
    choice: LayerChoice,
    i: number,
    normOptions: Parameters<typeof norm>[1],
    shared: Map<string, Module>,
  ): Block {
    const config = this.#config;
    const { width, heads, layers, normEps = 1e-5 } = config;
    const rotary = config.positions?.kind === "rotary" ? { rotary: config.positions } : {};
    const mixer = choice.mechanism.layer({
      ...{ width, heads, layer: i, layers, normEps, shared },
      ...(config.zeroCentered ? { zeroCentered: true } : {}),
      ...rotary,
      ...config.mixer,
      ...choice.options,
    });
    const feeding = feedForward(width, config.feedForward ?? { kind: "gated", width: gatedWidth(width) }, i);
    return new Block({
      mixerNorm: norm(width, normOptions),
      mixer,
      feedForwardNorm: feeding && norm(width, normOptions),
      feedForward: feeding,
      mixerResidual: config.residual?.mixer?.[choice.mechanism.id],
      feedForwardResidual: config.residual?.feedForward,
      dropout: config.dropout ?? 0,
    });
  }
}

/** Tokens of every sequence of a call: padding is none. */
function tokenCounts({ mask, cuSeqlens }: ModelContext, time: number): number | readonly number[] {
  if (cuSeqlens !== undefined) {
    const bounds = [...cuSeqlens.dataSync()];
    return bounds.slice(1).map((end, n) => end - bounds[n]!);
  }
  if (mask === undefined) return time;
  const values = mask.dataSync();
  return Array.from(
    { length: mask.shape[0]! },
    (_, b) => values.subarray(b * time, (b + 1) * time).filter((value) => value !== 0).length,
  );
}

/** Two thirds of four times the width, up to a multiple of 32: as many weights as a plain feed-forward of 4·D. */
function gatedWidth(width: number): number {
  return 32 * Math.ceil((8 * width) / 3 / 32);
}

/** The same block, kept as its input alone. Both runs draw the same random numbers. */
function again(block: Block, x: Tensor, context: LayerContext): { x: Tensor; balance: Tensor | undefined } {
  const { random } = context;
  const start = random?.state;
  return recompute({ x }, ({ x: input }) =>
    block.forward(input, start === undefined ? context : { ...context, random: Random.from(start) }),
  );
}
