import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { constant, uniformInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { Rotary } from "../../nn/rotary.ts";
import { sigmoid } from "../../ops/activation/index.ts";
import { type AttentionLayerSizes, attentionSizes } from "../attention/layer-sizes.ts";
import { type FeatureMap, featureMap } from "../feature-maps/index.ts";
import { checkTokens, Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions } from "../recurrence/recurrent-layer.ts";
import { fromHeads, Stream, toHeads } from "../recurrence/stream.ts";
import { checkWindow, defaultWindow } from "./forms.ts";
import { learnedMaps, type Maps, plainMaps } from "./maps.ts";
import { attendRing, ringOf } from "./stream.ts";

/** Options of the layer beyond those of every layer. K is D/HQ and V is K unless given. */
export interface SlidingWindowOptions extends LayerOptions {
  /** HKV, as many as `heads` unless given; `heads` is a multiple. */
  readonly keyValueHeads?: number;
  /** Tokens of exact softmax, a token itself among them; 64 unless given, 0 leaves linear attention alone. */
  readonly window?: number;
  /** `joint`: one denominator for both (LoLCATs); `gated`: each with its own. Joint unless given. */
  readonly join?: "joint" | "gated";
  /** `hedgehog`, learned for every head, or a parameter-free positive map by its id; hedgehog unless given. */
  readonly featureMap?: string | FeatureMap;
  /** Columns of the learned map, which gives twice as many features; K unless given. */
  readonly featureWidth?: number;
  /** Multiplies q·k of the softmax; K^-½ unless given. */
  readonly scale?: number;
  /** Projections with a bias; false unless given. */
  readonly bias?: boolean;
}

const who = "sliding-window";
/** Where LoLCATs begins: the window counts a tenth. */
const firstFactor = Math.log(0.1 / 0.9);

/**
 * The layer of a softmax window joined with linear attention over everything before it (LoLCATs, arXiv 2410.10254; the
 * gated sum after Infini-attention, arXiv 2404.07143, with a gate for every token and head).
 *
 * Its state does not grow: the last `window` keys and values, and sums over all before them.
 */
export class SlidingWindowLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly sizes: AttentionLayerSizes;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly featureMapQ: Parameter | undefined;
  readonly featureMapK: Parameter | undefined;
  readonly windowFactors: Parameter | undefined;
  readonly gateProj: Linear | undefined;
  readonly oProj: Linear;
  readonly #map: FeatureMap | undefined;
  readonly #rotary: Rotary | undefined;
  readonly #window: number;
  readonly #scale: number | undefined;

  constructor(options: SlidingWindowOptions) {
    super();
    checkOptions(who, options, [
      ...["keyValueHeads", "window", "join", "featureMap", "featureWidth", "scale", "bias"],
    ]);
    this.sizes = attentionSizes(who, options);
    const { D, HQ, HKV, K, V } = this.sizes;
    const {
      window = defaultWindow,
      join = "joint",
      bias = false,
      featureMap: map = "hedgehog",
      rotary,
    } = options;
    const columns = options.featureWidth ?? K;
    checkWindow(who, window);
    if (join !== "joint" && join !== "gated")
      throw new ConfigError(`[${who}] join: expected joint or gated, got ${String(join)}`);
    this.#window = window;
    this.#scale = options.scale;
    this.#map = map === "hedgehog" ? undefined : positive(featureMap(map));
    this.#rotary = rotary && new Rotary({ width: rotary.width ?? K, base: rotary.base ?? 10_000 });
    const features = this.#map?.width(K) ?? 2 * columns;
    this.stateSpec = {
      ...(window > 0 && {
        windowKey: { shape: [window, HKV, K], cache: false },
        windowValue: { shape: [window, HKV, V], cache: false },
      }),
      sums: { shape: [HQ, features, V + 1], cache: false },
    };
    const learned = (): Parameter | undefined =>
      this.#map === undefined
        ? new Parameter([HQ, K, columns], { init: uniformInit(-(K ** -0.5), K ** -0.5) })
        : undefined;
    this.qProj = new Linear(D, HQ * K, { bias });
    this.kProj = new Linear(D, HKV * K, { bias });
    this.vProj = new Linear(D, HKV * V, { bias });
    this.featureMapQ = learned();
    this.featureMapK = learned();
    this.windowFactors =
      join === "joint" && window > 0
        ? new Parameter([HQ], { init: constant(firstFactor), decays: false })
        : undefined;
    this.gateProj = join === "gated" ? new Linear(D, HQ, { bias: true }) : undefined;
    this.oProj = new Linear(HQ * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    checkTokens(who, x, this.sizes.D);
    if (!context.causal || context.memory !== undefined) {
      throw new UnsupportedError(
        `[${who}] the window looks back: expected causal: true and no memory, got ${context.causal ? "a memory" : "causal: false"}`,
        "Take softmax or linear attention to see everything.",
      );
    }
    const stream = new Stream(who, x, context);
    return stream.close(this.mix(stream.x, stream));
  }

  override dispose(): void {
    super.dispose();
    this.#rotary?.dispose();
  }

  private mix(x: Tensor, stream: Stream): Tensor {
    const { HQ, HKV } = this.sizes;
    let q = toHeads(this.qProj.forward(x), HQ);
    let k = toHeads(this.kProj.forward(x), HKV);
    const v = toHeads(this.vProj.forward(x), HKV);
    if (this.#rotary !== undefined) {
      const { positions, last } = stream.positions();
      q = this.#rotary.forward(q, positions, last);
      k = this.#rotary.forward(k, positions, last);
    }
    const gate = this.gateProj && sigmoid(this.gateProj.forward(x));
    const kind = this.gateProj === undefined ? "joint" : "gated";
    const how = {
      kind,
      windowFactor: this.windowFactors && sigmoid(this.windowFactors.value),
      eps: 1e-6,
    } as const;
    const ring = stream.state && ringOf(stream.state.parts, this.#window);
    const setting = { window: this.#window, scale: this.#scale, maps: this.maps(), how };
    return this.oProj.forward(fromHeads(attendRing(stream, ring, { q, k, v, gate }, setting)));
  }

  private maps(): Maps {
    const { HQ, K } = this.sizes;
    if (this.#map !== undefined) return plainMaps(HQ, K, this.#map);
    return learnedMaps(this.featureMapQ!.value, this.featureMapK!.value);
  }
}

function positive(map: FeatureMap): FeatureMap {
  if (map.isPositive && map.draw === undefined) return map;
  throw new ConfigError(
    `[${who}] featureMap divides by its sums: expected a positive map without a random part, got ${map.id}`,
    "Take elu+1, or leave it out for the learned map.",
  );
}
