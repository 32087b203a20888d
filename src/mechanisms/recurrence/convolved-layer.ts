import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { ShortConv } from "../../nn/short-conv.ts";
import { eluPlusOne, relu, silu } from "../../ops/activation/index.ts";
import { divide } from "../../ops/arithmetic/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { unitLength } from "../feature-maps/unit.ts";
import type { StateSpec } from "../layer.ts";
import { type HeadSizes, RecurrentLayer } from "./recurrent-layer.ts";
import { type Stream, toHeads } from "./stream.ts";

/** Taps of the short convolutions where options do not say. */
export const defaultConvWidth = 4;

const activations = { silu, relu, "elu+1": eluPlusOne, identity: (x: Tensor): Tensor => x } as const;
/** Channels over their sum, as the first delta rule has it; without a guard, for activations that are above 0. */
const overSum = (x: Tensor): Tensor => divide(x, sum(x, { axes: -1, keepDims: true }));
const norms = { l2: unitLength, sum: overSum } as const;

/** How projections become queries and keys. */
export interface ConvolvedOptions {
  /** Taps of the short convolutions; 4 unless given, and 0 for none. */
  readonly convWidth?: number | undefined;
  /** What queries and keys pass through behind their convolution; silu unless given. */
  readonly activation?: keyof typeof activations | undefined;
  /** What brings them to one size; l2 unless given. */
  readonly norm?: keyof typeof norms | undefined;
}

function checkChoice(who: string, name: string, choices: object, given: string): void {
  if (Object.hasOwn(choices, given)) return;
  throw new ConfigError(`[${who}] ${name}: expected ${Object.keys(choices).join(", ")}, got ${given}`);
}

/**
 * What the layers of the delta family have in common: q, k and v from projections through short causal convolutions
 * with silu, q and k at unit length.
 */
export abstract class ConvolvedLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly qConv1d: ShortConv | undefined;
  readonly kConv1d: ShortConv | undefined;
  readonly vConv1d: ShortConv | undefined;
  readonly #activation: keyof typeof activations;
  readonly #norm: keyof typeof norms;

  constructor(who: string, sizes: HeadSizes, options: ConvolvedOptions = {}) {
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    const { convWidth = defaultConvWidth, activation = "silu", norm = "l2" } = options;
    if (!Number.isInteger(convWidth) || convWidth < 0)
      throw new ConfigError(`[${who}] convWidth: expected a whole number >= 0, got ${convWidth}`);
    checkChoice(who, "queryKeyActivation", activations, activation);
    checkChoice(who, "queryKeyNorm", norms, norm);
    this.#activation = activation;
    this.#norm = norm;
    const conv = (channels: number, isSilu: boolean): ShortConv | undefined =>
      convWidth === 0
        ? undefined
        : new ShortConv({ channels, width: convWidth, ...(isSilu && { activation: "silu" }) });
    const part = (channels: number): StateSpec => ({ shape: [convWidth - 1, channels], cache: false });
    this.stateSpec = {
      ...(convWidth > 0 && { qConv: part(H * K), kConv: part(H * K), vConv: part(HV * V) }),
      state: { shape: [HV, K, V], cache: false },
    };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.qConv1d = conv(H * K, activation === "silu");
    this.kConv1d = conv(H * K, activation === "silu");
    this.vConv1d = conv(HV * V, true);
  }

  /** `q, k [B,T,H,K]` at one size and `v [B,T,HV,V]`. */
  protected heads(x: Tensor, stream: Stream): { q: Tensor; k: Tensor; v: Tensor } {
    const { H, HV } = this.sizes;
    const activate = activations[this.#activation];
    const mixed = (proj: Linear, conv: ShortConv | undefined, part: string): Tensor => {
      const y = proj.forward(x);
      if (conv === undefined) return y;
      return stream.convolve(conv, y, part);
    };
    // A convolution with silu has it inside.
    const isDone = this.#activation === "silu" && this.qConv1d !== undefined;
    const sized = (y: Tensor): Tensor => norms[this.#norm](toHeads(isDone ? y : activate(y), H));
    const v = mixed(this.vProj, this.vConv1d, "vConv");
    return {
      q: sized(mixed(this.qProj, this.qConv1d, "qConv")),
      k: sized(mixed(this.kProj, this.kConv1d, "kConv")),
      v: toHeads(this.vConv1d === undefined ? silu(v) : v, HV),
    };
  }
}
