import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { ShortConv } from "../../nn/short-conv.ts";
import { unitLength } from "../feature-maps/unit.ts";
import type { StateSpec } from "../layer.ts";
import { type HeadSizes, RecurrentLayer } from "./recurrent-layer.ts";
import { type Stream, toHeads } from "./stream.ts";

/** Taps of the short convolutions where options do not say. */
export const defaultConvWidth = 4;

/**
 * What the layers of the delta family have in common: q, k and v from projections through short causal convolutions
 * with silu, q and k at unit length.
 */
export abstract class ConvolvedLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly qConv1d: ShortConv;
  readonly kConv1d: ShortConv;
  readonly vConv1d: ShortConv;

  constructor(who: string, sizes: HeadSizes, convWidth: number = defaultConvWidth) {
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    const conv = (channels: number): ShortConv =>
      new ShortConv({ channels, width: convWidth, activation: "silu" });
    this.stateSpec = {
      qConv: { shape: [convWidth - 1, H * K], cache: false },
      kConv: { shape: [convWidth - 1, H * K], cache: false },
      vConv: { shape: [convWidth - 1, HV * V], cache: false },
      state: { shape: [HV, K, V], cache: false },
    };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.qConv1d = conv(H * K);
    this.kConv1d = conv(H * K);
    this.vConv1d = conv(HV * V);
  }

  /** `q, k [B,T,H,K]` of unit length and `v [B,T,HV,V]`. */
  protected heads(x: Tensor, stream: Stream): { q: Tensor; k: Tensor; v: Tensor } {
    const { H, HV } = this.sizes;
    const q = stream.convolve(this.qConv1d, this.qProj.forward(x), "qConv");
    const k = stream.convolve(this.kConv1d, this.kProj.forward(x), "kConv");
    const v = stream.convolve(this.vConv1d, this.vProj.forward(x), "vConv");
    return { q: unitLength(toHeads(q, H)), k: unitLength(toHeads(k, H)), v: toHeads(v, HV) };
  }
}
