import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { ShortConv } from "../../nn/short-conv.ts";
import { exp, sigmoid, softplus } from "../../ops/activation/index.ts";
import { add, multiply } from "../../ops/arithmetic/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import { unitLength } from "../feature-maps/unit.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { decayRateInit, timeStepInit } from "../recurrence/gate-init.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, type HeadSizes, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K is ¾·D/H and V is 2K unless given. */
export interface GatedDeltaOptions extends LayerOptions {
  /** Taps of the short convolutions; 4 unless given. */
  readonly convWidth?: number;
  /** A silu gate on the output; true unless given. */
  readonly outputGate?: boolean;
  /** beta runs to 2 instead of 1, so that a write may turn what was there around. */
  readonly negativeEigenvalues?: boolean;
}

/**
 * The layer of Gated DeltaNet (arXiv 2412.06464): q, k and v by short convolutions with silu, q and k at unit length,
 * g = −exp(A_log)·softplus(a + dt_bias), beta = σ(b), a norm per head gated by silu.
 */
export class GatedDeltaLayer extends RecurrentLayer {
  protected readonly who = "gated-delta";
  protected readonly width: number;
  readonly sizes: HeadSizes;
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly aProj: Linear;
  readonly bProj: Linear;
  readonly qConv1d: ShortConv;
  readonly kConv1d: ShortConv;
  readonly vConv1d: ShortConv;
  readonly aLog: Parameter;
  readonly dtBias: Parameter;
  readonly gProj: Linear | undefined;
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #strongest: number;

  constructor(options: GatedDeltaOptions) {
    super();
    checkOptions(this.who, options, ["convWidth", "outputGate", "negativeEigenvalues"]);
    this.sizes = headSizes(this.who, options, (D, H) => {
      const K = options.keyWidth ?? Math.round((0.75 * D) / H);
      return { K, V: 2 * K };
    });
    const { D, H, HV, K, V } = this.sizes;
    const { convWidth = 4, outputGate = true } = options;
    this.width = D;
    this.#strongest = options.negativeEigenvalues ? 2 : 1;
    this.stateSpec = {
      qConv: { shape: [convWidth - 1, H * K], cache: false },
      kConv: { shape: [convWidth - 1, H * K], cache: false },
      vConv: { shape: [convWidth - 1, HV * V], cache: false },
      state: { shape: [HV, K, V], cache: false },
    };
    const conv = (channels: number): ShortConv =>
      new ShortConv({ channels, width: convWidth, activation: "silu" });
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.aProj = new Linear(D, HV);
    this.bProj = new Linear(D, HV);
    this.qConv1d = conv(H * K);
    this.kConv1d = conv(H * K);
    this.vConv1d = conv(HV * V);
    this.aLog = new Parameter([HV], { init: decayRateInit(0, 16), decays: false });
    this.dtBias = new Parameter([HV], { init: timeStepInit(), decays: false });
    this.gProj = outputGate ? new Linear(D, HV * V) : undefined;
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const q = stream.convolve(this.qConv1d, this.qProj.forward(x), "qConv");
    const k = stream.convolve(this.kConv1d, this.kProj.forward(x), "kConv");
    const v = stream.convolve(this.vConv1d, this.vProj.forward(x), "vConv");
    const steps = softplus(add(this.aProj.forward(x), this.dtBias.value));
    const strength = sigmoid(this.bProj.forward(x));
    const o = stream.recur(rule, {
      q: unitLength(toHeads(q, H)),
      k: unitLength(toHeads(k, H)),
      v: toHeads(v, HV),
      g: multiply(steps, negate(exp(this.aLog.value))),
      beta: this.#strongest === 1 ? strength : scale(strength, this.#strongest),
    });
    const gate = this.gProj && toHeads(this.gProj.forward(x), HV);
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, gate)));
  }
}
