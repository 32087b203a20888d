import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { exp, sigmoid, softplus } from "../../ops/activation/index.ts";
import { add, multiply } from "../../ops/arithmetic/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import type { LayerOptions } from "../layer.ts";
import { ConvolvedLayer } from "../recurrence/convolved-layer.ts";
import { decayRateInit, timeStepInit } from "../recurrence/gate-init.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes } from "../recurrence/recurrent-layer.ts";
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

const who = "gated-delta";

/**
 * The layer of Gated DeltaNet (arXiv 2412.06464): q, k and v by short convolutions with silu, q and k at unit length,
 * g = −exp(A_log)·softplus(a + dt_bias), beta = σ(b), a norm per head gated by silu.
 */
export class GatedDeltaLayer extends ConvolvedLayer {
  readonly aProj: Linear;
  readonly bProj: Linear;
  readonly aLog: Parameter;
  readonly dtBias: Parameter;
  readonly gProj: Linear | undefined;
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #strongest: number;

  constructor(options: GatedDeltaOptions) {
    checkOptions(who, options, ["convWidth", "outputGate", "negativeEigenvalues"]);
    const sizes = headSizes(who, options, (D, H) => {
      const K = options.keyWidth ?? Math.round((0.75 * D) / H);
      return { K, V: 2 * K };
    });
    super(who, sizes, { convWidth: options.convWidth });
    const { D, HV, V } = sizes;
    this.#strongest = options.negativeEigenvalues ? 2 : 1;
    this.aProj = new Linear(D, HV);
    this.bProj = new Linear(D, HV);
    this.aLog = new Parameter([HV], { init: decayRateInit(0, 16), decays: false });
    this.dtBias = new Parameter([HV], { init: timeStepInit(), decays: false });
    this.gProj = (options.outputGate ?? true) ? new Linear(D, HV * V) : undefined;
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { HV } = this.sizes;
    const steps = softplus(add(this.aProj.forward(x), this.dtBias.value));
    const strength = sigmoid(this.bProj.forward(x));
    const o = stream.recur(rule, {
      ...this.heads(x, stream),
      g: multiply(steps, negate(exp(this.aLog.value))),
      beta: this.#strongest === 1 ? strength : scale(strength, this.#strongest),
    });
    const gate = this.gProj && toHeads(this.gProj.forward(x), HV);
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, gate)));
  }
}
