import { Tensor } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { RmsNorm } from "../../nn/norm.ts";
import { Rotary } from "../../nn/rotary.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { split } from "../../ops/split/index.ts";
import { attention } from "../attention/attention-op.ts";
import type { CacheSlabs } from "../attention/cache.ts";
import { attendPast, cacheOf, hasPast, keepTokens } from "../attention/stream-attention.ts";
import { checkTokens, Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions, headSizes } from "../recurrence/recurrent-layer.ts";
import { fromHeads, Stream, toHeads } from "../recurrence/stream.ts";
import { entryOf, type Latent, loweredInputs, raisedInputs, raiseOutput } from "./absorb.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface LatentAttentionOptions extends LayerOptions {
  /** R, what keys and values of all heads are raised from; 4·K unless given. */
  readonly latentWidth?: number;
  /** P, a part of the key that all heads share, the part that rotary positions turn; K/2 unless given. */
  readonly sharedKeyWidth?: number;
  /** Queries too are raised from a latent of this width; straight from the input unless given. */
  readonly queryLatentWidth?: number;
  /** Projections of the input with a bias; false unless given. */
  readonly bias?: boolean;
  /** Multiplies q·k; (K + P)^-½ unless given. */
  readonly scale?: number;
}

const who = "latent-attention";

/**
 * The layer of multi-head latent attention (arXiv 2405.04434, section 2.1.2), with rotary positions where the model has
 * them and without as in Kimi Linear (arXiv 2510.26692): c = norm(W^DKV x), keys [U^K c | p], values U^V c.
 *
 * The state keeps latent and shared key of each token, R + P numbers whatever the number of heads. Sequences from their
 * beginning raise keys and values; tokens that continue a state lower their queries to the latent instead.
 */
export class LatentAttentionLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly sizes: LatentSizes;
  readonly qProj: Linear | undefined;
  readonly qAProj: Linear | undefined;
  readonly qANorm: RmsNorm | undefined;
  readonly qBProj: Linear | undefined;
  readonly kvAProj: Linear;
  readonly kvANorm: RmsNorm;
  readonly kvBProj: Linear;
  readonly oProj: Linear;
  readonly #rotary: Rotary | undefined;
  readonly #scale: number;

  constructor(options: LatentAttentionOptions) {
    super();
    checkOptions(who, options, ["latentWidth", "sharedKeyWidth", "queryLatentWidth", "bias", "scale"]);
    this.sizes = sizesOf(options);
    const { D, H, K, V, R, P } = this.sizes;
    const { bias = false, rotary, queryLatentWidth: Q } = options;
    const normOptions = { eps: options.normEps ?? 1e-5, zeroCentered: options.zeroCentered ?? false };
    this.stateSpec = { latent: { shape: [0, 1, R + P], cache: true } };
    this.#scale = options.scale ?? (K + P) ** -0.5;
    this.#rotary = rotary && P > 0 ? new Rotary({ width: P, base: rotary.base ?? 10_000 }) : undefined;
    this.qProj = Q === undefined ? new Linear(D, H * (K + P)) : undefined;
    this.qAProj = Q === undefined ? undefined : new Linear(D, Q, { bias });
    this.qANorm = Q === undefined ? undefined : new RmsNorm(Q, normOptions);
    this.qBProj = Q === undefined ? undefined : new Linear(Q, H * (K + P));
    this.kvAProj = new Linear(D, R + P, { bias });
    this.kvANorm = new RmsNorm(R, normOptions);
    this.kvBProj = new Linear(R, H * (K + V));
    this.oProj = new Linear(H * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    checkTokens(who, x, this.sizes.D);
    if (context.memory !== undefined) {
      throw new UnsupportedError(
        `[${who}] the layer attends to its own sequence: expected no memory, got one`,
        "Use the softmax mechanism for cross-attention.",
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
    const { H, K, V, R, P } = this.sizes;
    const scale = this.#scale;
    const projected =
      this.qProj?.forward(x) ?? this.qBProj!.forward(this.qANorm!.forward(this.qAProj!.forward(x)));
    const [q, r0] = split(toHeads(projected, H), [K, P], -1) as [Tensor, Tensor];
    const [c0, p0] = split(this.kvAProj.forward(x), [R, P], -1) as [Tensor, Tensor];
    const { r, p } = this.turned(stream, r0, p0);
    const latent = { c: this.kvANorm.forward(c0), p };
    const slab = (): Tensor => stream.state!.parts["latent"]!;
    const plan = cacheOf(stream, slab);
    if (plan !== undefined) {
      const entry = entryOf(latent);
      keepTokens(plan, slab(), entry);
      if (hasPast(stream, plan)) {
        const [keyUp, valueUp] = split(reshape(this.kvBProj.weight.value, [H, K + V, R]), [K, V], 1);
        const lowered = loweredInputs(q, r, entry, keyUp!);
        const o = attendPast(stream, plan, slabsOf(slab(), R), lowered, { scale });
        return this.oProj.forward(fromHeads(raiseOutput(o, valueUp!)));
      }
    }
    const { causal } = stream.context;
    const inputs = raisedInputs(q, r, latent, this.raised(latent));
    const { output } = attention({ ...inputs, cuSeqlens: stream.cuSeqlens }, { causal, scale });
    return this.oProj.forward(fromHeads(output));
  }

  private raised({ c }: Latent): { keys: Tensor; values: Tensor } {
    const { H, K, V } = this.sizes;
    const [keys, values] = split(toHeads(this.kvBProj.forward(c), H), [K, V], -1);
    return { keys: keys!, values: values! };
  }

  /** `r [B,T,H,P]` and `p [B,T,P]` at their positions. */
  private turned(stream: Stream, r: Tensor, p: Tensor): { r: Tensor; p: Tensor } {
    if (this.#rotary === undefined) return { r, p };
    const { positions, last } = stream.positions();
    const shared = this.#rotary.forward(toHeads(p, 1), positions, last);
    return { r: this.#rotary.forward(r, positions, last), p: fromHeads(shared) };
  }
}

/** Entries `[slots, capacity, 1, R+P]` as keys, their first R numbers as values. */
function slabsOf(slab: Tensor, R: number): CacheSlabs {
  return { keys: slab, values: new Tensor(slab.layout, [...slab.shape.slice(0, 3), R]) };
}

/** The axes of the layer. */
export interface LatentSizes {
  readonly D: number;
  readonly H: number;
  readonly K: number;
  readonly V: number;
  readonly R: number;
  readonly P: number;
}

function sizesOf(options: LatentAttentionOptions): LatentSizes {
  if (options.valueHeads !== undefined && options.valueHeads !== options.heads) {
    throw new ConfigError(
      `[${who}] every head has its own value: expected valueHeads = heads, got ${options.valueHeads}`,
    );
  }
  const { D, H, K, V } = headSizes(who, options, (width, heads) => ({ K: width / heads, V: width / heads }));
  const R = options.latentWidth ?? 4 * K;
  const P = options.sharedKeyWidth ?? 2 * Math.floor(K / 4);
  const { queryLatentWidth } = options;
  for (const [name, size, least] of [
    ["latentWidth", R, 1],
    ["sharedKeyWidth", P, 0],
    ["queryLatentWidth", queryLatentWidth ?? 1, 1],
  ] as const) {
    if (Number.isInteger(size) && size >= least) continue;
    throw new ConfigError(`[${who}] ${name} is a size: expected a whole number >= ${least}, got ${size}`);
  }
  if (options.rotary === undefined || P % 2 === 0) return { D, H, K, V, R, P };
  throw new ConfigError(`[${who}] rotary positions turn pairs: expected an even sharedKeyWidth, got ${P}`);
}
