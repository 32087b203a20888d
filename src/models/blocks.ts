/** The blocks of a model and the way through them: what encoders and decoders have in common. */
import { recompute } from "../autograd/recompute.ts";
import { scope } from "../autograd/scope.ts";
import { isRecording } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import type { LayerContext, LayerState } from "../mechanisms/layer.ts";
import { pack, packingOf, unpack } from "../mechanisms/recurrence/packing.ts";
import { feedForward } from "../nn/feed-forward.ts";
import type { Module } from "../nn/module.ts";
import { type NormOptions, norm } from "../nn/norm.ts";
import { add } from "../ops/arithmetic/index.ts";
import { scale } from "../ops/scale/index.ts";
import { Random } from "../tensor/random.ts";
import { Block } from "./block.ts";
import {
  expandPattern,
  type LayerChoice,
  layerChoice,
  type MixerChoice,
  type Reach,
  type StackConfig,
} from "./config.ts";

/** The norms of a model. */
export function normOptionsOf(config: StackConfig): NormOptions {
  const { norm: kind = "rms", normEps: eps = 1e-5, zeroCentered = false } = config;
  return { kind, eps, zeroCentered };
}

/**
 * The blocks that a configuration asks for.
 *
 * @param cross Mixer that reads a memory in every block, where there is one.
 */
export function buildBlocks(config: StackConfig, reach: Reach, cross?: MixerChoice): Block[] {
  const { width, heads, layers, normEps = 1e-5, feedForward: feeding } = config;
  const norms = normOptionsOf(config);
  const shared = new Map<string, Module>();
  const rotary = config.positions?.kind === "rotary" ? { rotary: config.positions } : {};
  const layerOf = (choice: LayerChoice, i: number) =>
    choice.mechanism.layer({
      ...{ width, heads, layer: i, layers, normEps, shared },
      ...(config.zeroCentered ? { zeroCentered: true } : {}),
      ...choice.options,
    });
  return expandPattern(config, reach).map((choice, i) => {
    const mixer = layerOf({ ...choice, options: { ...rotary, ...config.mixer, ...choice.options } }, i);
    const fed = feedForward(width, feeding ?? { kind: "gated", width: gatedWidth(width) }, i);
    const reading = cross === undefined ? undefined : layerChoice(cross, { ...reach, causal: false });
    return new Block({
      mixerNorm: norm(width, norms),
      mixer,
      crossNorm: reading && norm(width, norms),
      cross: reading && layerOf(reading, i),
      feedForwardNorm: fed && norm(width, norms),
      feedForward: fed,
      mixerResidual: config.residual?.mixer?.[choice.mechanism.id],
      feedForwardResidual: config.residual?.feedForward,
      dropout: config.dropout ?? 0,
    });
  });
}

/** What a pass through blocks knows beside its input. */
export interface Passage extends Omit<LayerContext, "state"> {
  /** The state of every layer, where one is carried. */
  readonly states?: readonly LayerState[] | undefined;
  /** Each block keeps its input alone and computes the rest again in the backward pass. */
  readonly recompute?: boolean | undefined;
}

/** Hidden states, and the sum of the balance losses of experts where there are some. */
export type Passed = { x: Tensor; balance: Tensor | undefined };

/** `x [B, T, D]` through all blocks. Padding is taken out once and is zero in the result. */
export function throughBlocks(who: string, blocks: readonly Block[], x: Tensor, passage: Passage): Passed {
  const { mask, ...rest } = passage;
  const [batch, time] = x.shape as [number, number, number];
  // A memory has a row for every sequence, so its readers keep their rows and take padding out by themselves.
  const packing = mask && passage.memory === undefined ? packingOf(who, mask, batch, time) : undefined;
  if (packing === undefined) return run(blocks, x, passage.memory === undefined ? rest : passage);
  const passed = run(blocks, pack(x, packing), { ...rest, cuSeqlens: packing.cuSeqlens });
  return { x: unpack(passed.x, packing), balance: passed.balance };
}

function run(blocks: readonly Block[], x: Tensor, { states, recompute: again, ...passage }: Passage): Passed {
  let balance: Tensor | undefined;
  let hidden = x;
  for (const [i, block] of blocks.entries()) {
    const context: LayerContext = {
      ...passage,
      ...(states === undefined ? {} : { state: states[i]! }),
      ...(passage.random && { random: passage.random.fork(`${passage.random.stream} block ${i}`) }),
    };
    const passed = passThrough(block, hidden, context, again ?? false);
    hidden = passed.x;
    if (passed.balance !== undefined)
      balance = balance === undefined ? passed.balance : add(balance, passed.balance);
  }
  return { x: hidden, balance };
}

/** Elements from which on what a block leaves behind is worth giving back before the next one. */
const worthReleasing = 2 ** 17;

function passThrough(block: Block, x: Tensor, context: LayerContext, again: boolean): Passed {
  if (isRecording()) return again ? runAgain(block, x, context) : block.forward(x, context);
  // Without a record nothing inside a block is needed after it: the next block finds the same memory, still warm.
  return x.size < worthReleasing
    ? block.forward(x, context)
    : scope(x.device, () => block.forward(x, context));
}

/** The same block, kept as its inputs alone. Both runs draw the same random numbers. */
function runAgain(block: Block, x: Tensor, context: LayerContext): Passed {
  const { random, memory } = context;
  const start = random?.state;
  return recompute({ x, memory }, (inputs) =>
    block.forward(inputs.x, {
      ...context,
      ...(inputs.memory && { memory: inputs.memory }),
      ...(start && { random: Random.from(start) }),
    }),
  );
}

/** A loss with the balance loss of a model's experts, weighted as its configuration says. */
export function withBalance(loss: Tensor, balance: Tensor | undefined, config: StackConfig): Tensor {
  const { feedForward: kind } = config;
  const weight = kind?.kind === "experts" ? (kind.balance ?? 0) : 0;
  return balance === undefined || weight === 0 ? loss : add(loss, scale(balance, weight));
}

/** Two thirds of four times the width, up to a multiple of 32: as many weights as a plain feed-forward of 4·D. */
export function gatedWidth(width: number): number {
  return 32 * Math.ceil((8 * width) / 3 / 32);
}
