import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { zerosInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { exp, sigmoid, softplus } from "../../ops/activation/index.ts";
import { add, multiply } from "../../ops/arithmetic/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import type { LayerOptions } from "../layer.ts";
import { ConvolvedLayer } from "../recurrence/convolved-layer.ts";
import { decayRateInit, timeStepInit } from "../recurrence/gate-init.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface KimiDeltaOptions extends LayerOptions {
  /** Taps of the short convolutions; 4 unless given. */
  readonly convWidth?: number;
  /** A bias on the output gate; true unless given. Released models have it false. */
  readonly gateBias?: boolean;
  /** beta runs to 2 instead of 1, so that a write may turn what was there around. */
  readonly negativeEigenvalues?: boolean;
  /** The least that g may be, from −5 to below 0: the gate is then bounded. Unbounded unless given. */
  readonly gateBound?: number;
}

const who = "kda";

/**
 * The layer of Kimi Delta Attention (arXiv 2510.26692): q, k and v by short convolutions with silu, q and k at unit
 * length, g = −exp(A_log)·softplus(F₂F₁x + dt_bias) per key channel, beta = σ(b), a norm per head gated by
 * σ(G₂G₁x). With a bound b the gate is g = b·σ(exp(A_log)·(F₂F₁x + dt_bias)) instead, so that b < g < 0.
 */
export class KimiDeltaLayer extends ConvolvedLayer {
  readonly fProj: readonly [Linear, Linear];
  readonly bProj: Linear;
  readonly aLog: Parameter;
  readonly dtBias: Parameter;
  readonly gProj: readonly [Linear, Linear];
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #strongest: number;
  readonly #bound: number | undefined;

  constructor(options: KimiDeltaOptions) {
    checkOptions(who, options, ["convWidth", "gateBias", "negativeEigenvalues", "gateBound"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes, { convWidth: options.convWidth });
    const { D, HV, K, V } = sizes;
    this.#bound = boundOf(options.gateBound);
    this.#strongest = options.negativeEigenvalues ? 2 : 1;
    this.fProj = [new Linear(D, V), new Linear(V, HV * K)];
    this.bProj = new Linear(D, HV);
    const rates = this.#bound === undefined ? decayRateInit(1, 16) : zerosInit;
    this.aLog = new Parameter([HV], { init: rates, decays: false });
    this.dtBias = new Parameter([HV * K], { init: timeStepInit(), decays: false });
    this.gProj = [new Linear(D, V), new Linear(V, HV * V, { bias: options.gateBias ?? true })];
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5, { activation: "sigmoid" });
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { HV } = this.sizes;
    const through = ([down, up]: readonly [Linear, Linear]): Tensor => up.forward(down.forward(x));
    const steps = toHeads(add(through(this.fProj), this.dtBias.value), HV);
    const rates = reshape(exp(this.aLog.value), [HV, 1]);
    const strength = sigmoid(this.bProj.forward(x));
    const o = stream.recur(rule, {
      ...this.heads(x, stream),
      g:
        this.#bound === undefined
          ? multiply(softplus(steps), negate(rates))
          : scale(sigmoid(multiply(steps, rates)), this.#bound),
      beta: this.#strongest === 1 ? strength : scale(strength, this.#strongest),
    });
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, toHeads(through(this.gProj), HV))));
  }
}

function boundOf(bound: number | undefined): number | undefined {
  if (bound === undefined || (bound >= -5 && bound < 0)) return bound;
  throw new ConfigError(
    `[${who}] gateBound is a log decay: expected a number from -5 to below 0, got ${bound}`,
  );
}
