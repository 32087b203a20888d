import { isRecording } from "../../autograd/tape.ts";
import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { RmsNorm } from "../../nn/norm.ts";
import { Rotary } from "../../nn/rotary.ts";
import { sigmoid } from "../../ops/activation/index.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { split } from "../../ops/split/index.ts";
import type { CacheSlabs } from "../attention/cache.ts";
import { type AttentionLayerSizes, attentionSizes } from "../attention/layer-sizes.ts";
import { attentionByMatrix } from "../attention/matrix-op.ts";
import { attendStream, type StreamInputs } from "../attention/stream-attention.ts";
import { checkTokens, Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions } from "../recurrence/recurrent-layer.ts";
import { fromHeads, Stream, toHeads } from "../recurrence/stream.ts";

/** Options of the layer beyond those of every layer. K is D/HQ and V is K unless given. */
export interface SoftmaxLayerOptions extends LayerOptions {
  /** HKV, as many as `heads` unless given; `heads` is a multiple. */
  readonly keyValueHeads?: number;
  /** The query projection also yields a gate: output · sigmoid(gate). Laid out per head [query | gate]. */
  readonly gated?: boolean;
  /** RMS norms of queries and keys along K. */
  readonly queryKeyNorm?: boolean;
  /** Projections with a bias; false unless given. */
  readonly bias?: boolean;
  /** A token sees itself and the window − 1 before it; everything unless given. */
  readonly window?: number;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /**
   * `cache` keeps keys and values of what was seen; `stateless` carries nothing, so that every token costs the prefix;
   * `matrix` does so with the whole T×T matrix of weights in memory, as papers timed softmax.
   */
  readonly decoding?: "cache" | "stateless" | "matrix";
  /** Width of the memory that cross-attention reads; `width` unless given. */
  readonly memoryWidth?: number;
}

const who = "softmax";
const decodings = ["cache", "stateless", "matrix"];

/**
 * The layer of exact attention (arXiv 1706.03762, section 3.2.2): multi-head, grouped queries (arXiv 2305.13245), and the
 * gated form of Qwen3-Next (arXiv 2505.06708: output · sigmoid(gate), norms of queries and keys, partial rotary) by
 * options.
 *
 * With a state it keeps the keys and values of its sequences; `memory` makes it cross-attention, which is not causal,
 * turns nothing and keeps nothing. `causal: false` lets every token see all.
 */
export class SoftmaxLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly sizes: AttentionLayerSizes;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly qNorm: RmsNorm | undefined;
  readonly kNorm: RmsNorm | undefined;
  readonly oProj: Linear;
  readonly #rotary: Rotary | undefined;
  readonly #gated: boolean;
  readonly #byMatrix: boolean;
  readonly #choices: { readonly window: number | undefined; readonly scale: number | undefined };

  constructor(options: SoftmaxLayerOptions) {
    super();
    checkOptions(who, options, [
      ...["keyValueHeads", "gated", "queryKeyNorm", "bias", "window", "scale", "decoding", "memoryWidth"],
    ]);
    this.sizes = attentionSizes(who, options);
    checkChoices(options);
    const { D, HQ, HKV, K, V } = this.sizes;
    const { bias = false, gated = false, memoryWidth = D, rotary } = options;
    this.stateSpec =
      options.decoding === "stateless" || options.decoding === "matrix"
        ? {}
        : { key: { shape: [0, HKV, K], cache: true }, value: { shape: [0, HKV, V], cache: true } };
    this.#gated = gated;
    this.#choices = { window: options.window, scale: options.scale };
    this.#byMatrix = options.decoding === "matrix";
    this.#rotary = rotary && new Rotary({ width: rotary.width ?? K, base: rotary.base ?? 10_000 });
    const normOptions = { eps: options.normEps ?? 1e-5, zeroCentered: options.zeroCentered ?? false };
    const normed = options.queryKeyNorm ?? false;
    this.qProj = new Linear(D, HQ * (gated ? K + V : K), { bias });
    this.kProj = new Linear(memoryWidth, HKV * K, { bias });
    this.vProj = new Linear(memoryWidth, HKV * V, { bias });
    this.qNorm = normed ? new RmsNorm(K, normOptions) : undefined;
    this.kNorm = normed ? new RmsNorm(K, normOptions) : undefined;
    this.oProj = new Linear(HQ * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    checkTokens(who, x, this.sizes.D);
    const stream = new Stream(who, x, context);
    return stream.close(this.mix(stream.x, stream));
  }

  override dispose(): void {
    super.dispose();
    this.#rotary?.dispose();
  }

  private mix(x: Tensor, stream: Stream): Tensor {
    const { HQ, HKV, K, V } = this.sizes;
    const { context, state } = stream;
    const source = context.memory ?? x;
    const wide = toHeads(this.qProj.forward(x), HQ);
    const [query, gate] = this.#gated ? split(wide, [K, V], -1) : [wide];
    let q = this.qNorm?.forward(query!) ?? query!;
    const keys = toHeads(this.kProj.forward(source), HKV);
    let k = this.kNorm?.forward(keys) ?? keys;
    const v = toHeads(this.vProj.forward(source), HKV);
    if (this.#rotary !== undefined && context.memory === undefined) {
      const { positions, last } = stream.positions();
      q = this.#rotary.forward(q, positions, last);
      k = this.#rotary.forward(k, positions, last);
    }
    const slabs = (): CacheSlabs => ({ keys: state!.parts["key"]!, values: state!.parts["value"]! });
    const o = this.#byMatrix
      ? this.attendWhole(context, { q, k, v })
      : attendStream(stream, slabs, { q, k, v }, this.#choices);
    return this.oProj.forward(fromHeads(gate === undefined ? o : multiply(o, sigmoid(gate))));
  }

  private attendWhole({ cuSeqlens, causal, memory, memoryMask }: LayerContext, inputs: StreamInputs): Tensor {
    const options = { ...this.#choices, causal: causal && memory === undefined };
    const { output, weights } = attentionByMatrix({ ...inputs, cuSeqlens, mask: memoryMask }, options);
    // The largest tensor of the layer by far: without a record nobody looks at it again.
    if (!isRecording()) weights.dispose();
    return output;
  }
}

function checkChoices({ window, decoding }: SoftmaxLayerOptions): void {
  if (window !== undefined && !(Number.isInteger(window) && window >= 1)) {
    throw new ConfigError(
      `[${who}] bad window: expected a whole number >= 1, got ${window}`,
      "A window of 1 is a token that sees only itself; leave it out to see everything.",
    );
  }
  if (decoding !== undefined && !decodings.includes(decoding)) {
    throw new ConfigError(`[${who}] decoding: expected ${decodings.join(", ")}, got ${String(decoding)}`);
  }
}
