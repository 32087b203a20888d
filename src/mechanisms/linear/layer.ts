import { full, type Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { Rotary } from "../../nn/rotary.ts";
import { divide } from "../../ops/arithmetic/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { scale } from "../../ops/scale/index.ts";
import { HadamardMap } from "../feature-maps/hadamard.ts";
import { type FeatureMap, featureMap } from "../feature-maps/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { defaultEps } from "../recurrence/rule.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { bareRule, rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface LinearAttentionOptions extends LayerOptions {
  /** A parameter-free map by its id, or `hadamard`, which is learned; elu+1 unless given. */
  readonly featureMap?: string | FeatureMap;
  /** Whether Σ φ(q)·φ(k) divides; as the map is positive unless given. */
  readonly normalize?: boolean;
  /** Base of rotary positions on the numerator; none unless given. */
  readonly rotaryBase?: number;
  /** A norm per head after it; false unless given. */
  readonly norm?: boolean;
  /** Multiplies q·k; 1 unless given. */
  readonly scale?: number;
}

const who = "linear";

/**
 * The layer of linear attention (arXiv 2006.16236): o = Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) between projections. With rotary
 * positions the numerator is turned and the denominator is not (RoFormer, arXiv 2104.09864), so that it stays
 * positive.
 */
export class LinearAttentionLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly featureMapQ: HadamardMap | undefined;
  readonly featureMapK: HadamardMap | undefined;
  readonly norm: HeadNorm | undefined;
  readonly oProj: Linear;
  readonly #map: FeatureMap | undefined;
  readonly #rotary: Rotary | undefined;
  readonly #normalize: boolean;
  readonly #scale: number;

  constructor(options: LinearAttentionOptions) {
    checkOptions(who, options, ["featureMap", "normalize", "rotaryBase", "norm", "scale"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes, { full: true });
    const { D, H, HV, K, V } = sizes;
    const { featureMap: map = "elu+1", rotaryBase } = options;
    this.#map = map === "hadamard" ? undefined : featureMap(map);
    if (this.#map?.draw !== undefined)
      throw new ConfigError(
        `[linear] featureMap has a random part: expected one without, got ${this.#map.id}`,
        "Use the performer mechanism for positive random features.",
      );
    const features = this.#map?.width(K) ?? K;
    this.#normalize = options.normalize ?? this.#map?.isPositive ?? false;
    this.#rotary = rotaryBase === undefined ? undefined : new Rotary({ width: features, base: rotaryBase });
    this.#scale = options.scale ?? 1;
    const sums = this.#rotary === undefined ? [HV, features] : [H, features, 1];
    this.stateSpec = {
      state: { shape: [HV, features, V], cache: false },
      ...(this.#normalize && { normalizer: { shape: sums, cache: false } }),
    };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.featureMapQ = this.#map === undefined ? new HadamardMap(K) : undefined;
    this.featureMapK = this.#map === undefined ? new HadamardMap(K) : undefined;
    this.norm = options.norm ? new HeadNorm(V, options.normEps ?? 1e-5) : undefined;
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const q = toHeads(this.qProj.forward(x), H);
    const k = toHeads(this.kProj.forward(stream.source), H);
    const v = toHeads(this.vProj.forward(stream.source), HV);
    const o = this.attend(stream, q, k, v);
    return this.oProj.forward(fromHeads(this.norm?.forward(o) ?? o));
  }

  private attend(stream: Stream, q: Tensor, k: Tensor, v: Tensor): Tensor {
    const chosen = this.#normalize ? rule : bareRule;
    const map = this.#map;
    if (map !== undefined && this.#rotary === undefined)
      return stream.recur(chosen, { q, k, v }, { scale: this.#scale, map });
    const phiQ = map?.apply(q) ?? this.featureMapQ!.forward(q);
    const phiK = map?.apply(k) ?? this.featureMapK!.forward(k);
    if (this.#rotary !== undefined) return this.turned(this.#rotary, stream, phiQ, phiK, v);
    return stream.recur(chosen, { q: phiQ, k: phiK, v }, { scale: this.#scale });
  }

  override dispose(): void {
    super.dispose();
    this.#rotary?.dispose();
  }

  /** Σ (Rφ(q))·(Rφ(k)) v over Σ φ(q)·φ(k): two recurrences, the second one column wide. */
  private turned(rotary: Rotary, stream: Stream, q: Tensor, k: Tensor, v: Tensor): Tensor {
    if (stream.context.memory !== undefined) {
      throw new ConfigError(
        "[linear] rotary positions are those of one sequence: expected no memory, got one",
      );
    }
    const { H, HV } = this.sizes;
    const { positions, last } = stream.positions();
    const call = { scale: this.#scale };
    const turnedQ = rotary.forward(q, positions, last);
    const turnedK = rotary.forward(k, positions, last);
    const numerator = stream.recur(bareRule, { q: turnedQ, k: turnedK, v }, call);
    if (!this.#normalize) return numerator;
    const ones = full(v.device, [...k.shape.slice(0, 3), 1], 1, { dtype: v.dtype });
    const parts = { state: "normalizer", normalizer: "" };
    const sums = stream.recur(bareRule, { q, k, v: ones }, call, parts);
    return divide(numerator, scale(repeatHeads(sums, HV / H), 1, defaultEps));
  }
}
