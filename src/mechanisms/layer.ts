/** What every mixing layer of a model is: `[B, T, D]` in, `[B, T, D]` out, and a state that carries it over time. */
import type { Tensor } from "../autograd/tensor.ts";
import { ShapeError } from "../errors.ts";
import { Module } from "../nn/module.ts";
import type { Random } from "../tensor/random.ts";

/** The options every layer takes; a mechanism adds its own beside them. */
export interface LayerOptions {
  /** Model width D. */
  readonly width: number;
  /** Query/key heads H. */
  readonly heads: number;
  /** Value heads HV, H unless given. */
  readonly valueHeads?: number;
  /** K, the mechanism's default unless given. */
  readonly keyWidth?: number;
  /** V, the mechanism's default unless given. */
  readonly valueWidth?: number;
  /** Position of the layer among `layers`, for constants that depend on depth. */
  readonly layer?: number;
  readonly layers?: number;
  readonly normEps?: number;
  /** Rotary positions of the model; mixers that have none of their own and need none leave them aside. */
  readonly rotary?: { readonly base?: number; readonly width?: number };
  /** Norms of queries and keys weigh by 1 + w, in mixers that have such norms. */
  readonly zeroCentered?: boolean;
  /** What layers of one model share, by names of their own: the first that needs it puts it there. */
  readonly shared?: Map<string, Module>;
  readonly [own: string]: unknown;
}

/** One part of a layer's state for one sequence. */
export interface StateSpec {
  readonly shape: readonly number[];
  /** True when the first axis counts tokens seen and grows with them. */
  readonly cache: boolean;
  /** What it holds before the first token; 0 unless given. */
  readonly initial?: number;
}

/**
 * The state of many sequences side by side: part NAME is `[slots, ...shape]`, and row b of a batch lives in slot
 * `slots[b]`. Joining, leaving and forking sequences copy nothing but their own slots.
 */
export interface LayerState {
  readonly parts: Readonly<Record<string, Tensor>>;
  /** int32 [B]. */
  readonly slots: Tensor;
  /** Tokens that each row has seen, for positions and caches. */
  readonly seen: readonly number[];
  /** Where the one new token of each row stands, where that is on the device already. */
  readonly places?: StepPlaces;
}

/** Places of the one new token of each row. */
export interface StepPlaces {
  /** int32 [B, 1]. */
  readonly positions: Tensor;
  /** int32 [B]: tokens of each row, the new one among them. */
  readonly lengths: Tensor;
  /** int32 [B], slot · capacity + position: where parts that grow take the token. */
  readonly entries: Tensor;
  /** No position is beyond it. */
  readonly last: number;
}

/** What a forward pass knows beside its input. */
export interface LayerContext {
  readonly training: boolean;
  readonly causal: boolean;
  /** Read at the beginning and written at the end of the call. */
  readonly state?: LayerState;
  /** int32 [B, T], 1 for tokens and 0 for padding, which stays out of convolution, state and normaliser. */
  readonly mask?: Tensor;
  /** int32 [N+1], B = 1. */
  readonly cuSeqlens?: Tensor;
  /** Keys and values come from here instead of x: cross-attention. */
  readonly memory?: Tensor;
  /** int32 [B, T of the memory], 1 for tokens of the memory and 0 for its padding. */
  readonly memoryMask?: Tensor;
  /** Draws seeds of dropout and random features. */
  readonly random?: Random;
}

/** Throws a ShapeError where `x` is not `[B, T, D]` with the width of the layer. */
export function checkTokens(who: string, x: Tensor, D: number): void {
  if (x.rank === 3 && x.shape[2] === D) return;
  throw new ShapeError(
    `[${who}] x does not fit the layer: expected [B, T, D=${D}], got [${x.shape.join(", ")}]`,
  );
}

/** A mixing layer. */
export abstract class Layer extends Module {
  /** Parts of the state of one sequence; empty where the layer cannot carry one. */
  abstract readonly stateSpec: Readonly<Record<string, StateSpec>>;

  /** Whether a sequence can be continued from a state instead of from its beginning. */
  get carriesState(): boolean {
    return Object.keys(this.stateSpec).length > 0;
  }

  /** Draws random features anew, where the layer has any: an option of training. */
  redraw(_random: Random): void {}

  /** `x [B, T, D]` → `[B, T, D]`. */
  abstract forward(x: Tensor, context: LayerContext): Tensor;
}
