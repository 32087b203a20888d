import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { Random } from "../../tensor/random.ts";
import { checkTokens, Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions, type HeadSizes, headSizes } from "../recurrence/recurrent-layer.ts";
import { fromHeads, Stream, toHeads } from "../recurrence/stream.ts";
import { attendSequences, checkGroup, checkRounds, defaultGroup } from "./forms.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface LshOptions extends LayerOptions {
  /** Rounds of hashing; 4 unless given. */
  readonly rounds?: number;
  /** Tokens of a group of the sorted sequence: each sees its own group and the one before; 64 unless given. */
  readonly group?: number;
  /** Buckets, an even number; as many as there are groups, at most 256, unless given. */
  readonly buckets?: number;
  /** What the rotations are drawn from; the position of the layer unless given. */
  readonly seed?: number;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /** Projections with a bias; false unless given. */
  readonly bias?: boolean;
}

const who = "lsh";
const mostBuckets = 256;

/**
 * The layer of Reformer's attention (arXiv 2001.04451, section 2): one projection for queries and keys, hashing by random
 * rotations, attention inside groups of the sorted sequence.
 *
 * Deterministic for its seed; `redraw` gives it other rotations. It carries no state: where a token stands in the sorted
 * sequence depends on all others, so that each new token needs the prefix again.
 */
export class LshLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>> = {};
  readonly sizes: HeadSizes;
  readonly qkProj: Linear;
  readonly vProj: Linear;
  readonly oProj: Linear;
  readonly #rounds: number;
  readonly #group: number;
  readonly #buckets: number | undefined;
  readonly #scale: number;
  readonly #drawn: { random: Random; tensors: Map<number, Tensor> };

  constructor(options: LshOptions) {
    super();
    checkOptions(who, options, ["rounds", "group", "buckets", "seed", "scale", "bias"]);
    this.sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    const { D, H, HV, K, V } = this.sizes;
    if (HV !== H)
      throw new ConfigError(`[${who}] every head has its own value: expected valueHeads ${H}, got ${HV}`);
    const { bias = false, buckets } = options;
    this.#rounds = options.rounds ?? 4;
    this.#group = options.group ?? defaultGroup;
    this.#buckets = buckets;
    this.#scale = options.scale ?? K ** -0.5;
    checkRounds(who, this.#rounds);
    checkGroup(who, this.#group);
    if (buckets !== undefined && !(Number.isInteger(buckets) && buckets >= 2 && buckets % 2 === 0)) {
      throw new ConfigError(
        `[${who}] buckets come in opposite pairs: expected an even number >= 2, got ${buckets}`,
      );
    }
    const random = new Random(options.seed ?? options.layer ?? 0, "lsh rotations");
    this.#drawn = { random, tensors: new Map() };
    this.qkProj = new Linear(D, H * K, { bias });
    this.vProj = new Linear(D, H * V, { bias });
    this.oProj = new Linear(H * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    const { D, H } = this.sizes;
    checkTokens(who, x, D);
    if (context.memory !== undefined || context.state !== undefined) {
      throw new UnsupportedError(
        `[${who}] queries are keys, and places depend on all tokens: expected no memory and no state, got ${context.memory ? "a memory" : "a state"}`,
        "Give the layer whole sequences.",
      );
    }
    const stream = new Stream(who, x, context);
    const bounds = stream.cuSeqlens && [...stream.cuSeqlens.dataSync()];
    const choices = {
      rotations: this.rotations(x.device, x.shape[1]!),
      group: this.#group,
      causal: context.causal,
      scale: this.#scale,
    };
    const q = toHeads(this.qkProj.forward(stream.x), H);
    const v = toHeads(this.vProj.forward(stream.x), H);
    return stream.close(this.oProj.forward(fromHeads(attendSequences(q, v, bounds, choices))));
  }

  /** Other rotations from now on. */
  override redraw(random: Random): void {
    this.forget();
    this.#drawn.random = random.fork("lsh rotations");
  }

  override dispose(): void {
    super.dispose();
    this.forget();
  }

  private forget(): void {
    for (const drawn of this.#drawn.tensors.values()) drawn.dispose();
    this.#drawn.tensors.clear();
  }

  /** `[rounds,K,half]` for sequences of a length; columns of a longer one begin with those of a shorter. */
  private rotations(device: Device, time: number): Tensor {
    const { K } = this.sizes;
    const groups = Math.min(mostBuckets, Math.max(2, Math.ceil(time / this.#group)));
    const half = Math.ceil((this.#buckets ?? groups) / 2);
    const known = this.#drawn.tensors.get(half);
    if (known !== undefined && known.device === device) return known;
    known?.dispose();
    const values = new Float64Array(this.#rounds * K * half);
    for (let column = 0; column < half; column++) {
      const { random } = this.#drawn;
      const drawn = random.fork(`column ${column}`).normal(new Float64Array(this.#rounds * K));
      for (let i = 0; i < drawn.length; i++) values[i * half + column] = drawn[i]!;
    }
    const rotations = tensor(device, values, [this.#rounds, K, half], { persistent: true });
    this.#drawn.tensors.set(half, rotations);
    return rotations;
  }
}
