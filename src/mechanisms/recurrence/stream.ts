import { isRecording, noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import type { ShortConv } from "../../nn/short-conv.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import type { FeatureMap } from "../feature-maps/feature-map.ts";
import type { LayerContext, LayerState } from "../layer.ts";
import { type Packing, pack, packingOf, unpack } from "./packing.ts";
import { type RecurrenceCall, type RecurrenceInputs, type RecurrenceRule, runRule } from "./rule.ts";
import { putSlots, takeSlots } from "./slab.ts";
import { stepOn } from "./step.ts";

/** Names of the parts of a layer's state that hold a recurrence's state and its normaliser. */
export interface PartNames {
  readonly state: string;
  readonly normalizer: string;
}

const usualParts: PartNames = { state: "state", normalizer: "normalizer" };

/** Positions of tokens, and the largest of them. */
export interface TokenPositions {
  /** int32 `[B, T]`; absent where they count from 0. */
  readonly positions?: Tensor;
  readonly last: number;
}

/**
 * One call of a layer: the tokens it works on without their padding, and the state that they find and leave behind.
 *
 * Reads and writes of the state go by part name; a call without state begins from nothing and leaves nothing.
 */
export class Stream {
  readonly who: string;
  /** `[B, T, D]`, or `[1, n, D]` once padding is taken out. */
  readonly x: Tensor;
  readonly context: LayerContext;
  readonly cuSeqlens: Tensor | undefined;
  /** Undefined also where keys come from a memory: there is nothing to carry on. */
  readonly state: LayerState | undefined;
  /** Every token sees what came before it, and not all that there is or all of a memory. */
  readonly causal: boolean;
  /** Where keys and values come from. */
  readonly source: Tensor;
  /** Single tokens on carried states: the step kernels work on the slab itself. */
  readonly isStep: boolean;
  readonly #packing: Packing | undefined;

  constructor(who: string, x: Tensor, context: LayerContext) {
    this.who = who;
    this.context = context;
    const [B, T] = x.shape as [number, number, number];
    const mask = context.memory === undefined ? context.mask : undefined;
    if (mask !== undefined && context.cuSeqlens !== undefined) {
      throw new ConfigError(
        `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
      );
    }
    this.#packing = mask && packingOf(who, mask, B, T);
    this.x = this.#packing === undefined ? x : pack(x, this.#packing);
    this.cuSeqlens = this.#packing?.cuSeqlens ?? context.cuSeqlens;
    checkMemoryMask(who, context);
    this.state = context.memory === undefined ? context.state : undefined;
    this.causal = context.causal && context.memory === undefined;
    this.source = context.memory ?? this.x;
    if (this.state !== undefined && this.state.slots.size !== this.sequences) {
      throw new ShapeError(
        `[${who}] state has a slot for every sequence: expected ${this.sequences} slots, got ${this.state.slots.size}`,
      );
    }
    this.isStep =
      this.state !== undefined && this.causal && T === 1 && this.cuSeqlens === undefined && !isRecording();
  }

  /** How many sequences there are: rows of the batch, or packed ones. */
  get sequences(): number {
    return this.cuSeqlens === undefined ? this.x.shape[0]! : this.cuSeqlens.size - 1;
  }

  /** The result in the shape of the call's input: zeros where there was padding. */
  close(y: Tensor): Tensor {
    return this.#packing === undefined ? y : unpack(y, this.#packing);
  }

  /** What the sequences find in a part of the state `[N, ...]`; undefined where none is carried. */
  carried(part: string): Tensor | undefined {
    return this.state && takeSlots(this.slab(part), this.state.slots);
  }

  /** Leaves `rows [N, ...]` behind in a part of the state. */
  leave(part: string, rows: Tensor): void {
    const { state } = this;
    if (state !== undefined) noGrad(() => putSlots(this.slab(part), state.slots, rows));
  }

  /** A short convolution that carries its last tokens in a part of the state. */
  convolve(conv: ShortConv, x: Tensor, part: string): Tensor {
    const { y, finalState } = conv.forward(x, this.carried(part), this.cuSeqlens);
    this.leave(part, finalState);
    return y;
  }

  /** The recurrence over the tokens: chunk by chunk for many of them, the step kernel for one. */
  recur(
    rule: RecurrenceRule,
    inputs: RecurrenceInputs,
    call: Pick<RecurrenceCall, "scale" | "eps" | "chunk" | "map"> = {},
    parts: PartNames = usualParts,
  ): Tensor {
    const { state, cuSeqlens, causal } = this;
    if (this.isStep) {
      const normalizer = rule.normalize ? this.slab(parts.normalizer) : undefined;
      return stepOn(rule, { state: this.slab(parts.state), normalizer }, state!.slots, inputs, call);
    }
    const initialState = this.carried(parts.state);
    const initialNormalizer = rule.normalize ? this.carried(parts.normalizer) : undefined;
    const { map, ...pair } = this.withoutPadding(inputs, call.map);
    const { output, finalState, finalNormalizer } = runRule(
      rule,
      "chunkwise",
      { ...inputs, ...pair, initialState, initialNormalizer },
      { ...call, map, causal, cuSeqlens },
    );
    this.leave(parts.state, finalState);
    if (finalNormalizer !== undefined) this.leave(parts.normalizer, finalNormalizer);
    return output;
  }

  /** Where the tokens stand in their sequences, what they have seen before included. */
  positions(): TokenPositions {
    if (this.isStep && this.state?.places !== undefined) return this.state.places;
    const [B, T] = this.x.shape as [number, number, number];
    const bounds = this.#packing?.bounds ?? (this.cuSeqlens && [...this.cuSeqlens.dataSync()]);
    const seen = this.state?.seen ?? [];
    if (bounds === undefined && seen.every((count) => count === 0)) return { last: T - 1 };
    const values = new Int32Array(B * T);
    let last = 0;
    for (let n = 0; n < this.sequences; n++) {
      const from = bounds?.[n] ?? n * T;
      const to = bounds?.[n + 1] ?? (n + 1) * T;
      for (let row = from; row < to; row++) values[row] = (seen[n] ?? 0) + row - from;
      if (to > from) last = Math.max(last, values[to - 1]!);
    }
    return { positions: tensor(this.x.device, values, [B, T], { dtype: "int32" }), last };
  }

  /** Queries and keys, those of a memory's padding at zero once mapped: they add nothing to state and normaliser. */
  private withoutPadding(
    { q, k }: Pick<RecurrenceInputs, "q" | "k">,
    map: FeatureMap | undefined,
  ): Pick<RecurrenceInputs, "q" | "k"> & { map?: FeatureMap | undefined } {
    const { memory, memoryMask } = this.context;
    if (memory === undefined || memoryMask === undefined) return { q, k, map };
    const shape = [...memory.shape.slice(0, 2), 1, 1];
    const real = tensor(k.device, Float32Array.from(memoryMask.dataSync()), shape, { dtype: k.dtype });
    return { q: map?.apply(q) ?? q, k: multiply(map?.apply(k) ?? k, real) };
  }

  private slab(part: string): Tensor {
    const slab = this.state!.parts[part];
    if (slab !== undefined) return slab;
    throw new ConfigError(
      `[${this.who}] state has no part ${part}: expected the parts of this layer's stateSpec, got ${Object.keys(this.state!.parts).join(", ")}`,
    );
  }
}

function checkMemoryMask(who: string, { memory, memoryMask }: LayerContext): void {
  if (memory === undefined || memoryMask === undefined) return;
  const [B, Tm] = memory.shape as [number, number, number];
  if (memoryMask.rank === 2 && memoryMask.shape[0] === B && memoryMask.shape[1] === Tm) return;
  throw new ShapeError(
    `[${who}] memoryMask says which tokens of the memory are real: expected [B=${B}, T=${Tm}], got [${memoryMask.shape.join(", ")}]`,
  );
}

/** `x [B, T, H*K]` → `[B, T, H, K]`. */
export function toHeads(x: Tensor, heads: number): Tensor {
  const [B, T, width] = x.shape as [number, number, number];
  return reshape(x, [B, T, heads, width / heads]);
}

/** `x [B, T, H, K]` → `[B, T, H*K]`. */
export function fromHeads(x: Tensor): Tensor {
  const [B, T, heads, width] = x.shape as [number, number, number, number];
  return reshape(x, [B, T, heads * width]);
}
