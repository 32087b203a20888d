import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { logSigmoid, relu } from "../../ops/activation/index.ts";
import { scale } from "../../ops/scale/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K is D/2H and V is D/H unless given. */
export interface GatedLinearOptions extends LayerOptions {
  /** Width of the bottleneck that the gate comes through; 16 unless given. */
  readonly gateRank?: number;
  /** What the log-sigmoid of the gate is divided by; 16 unless given, so that heads begin by forgetting little. */
  readonly gateDivisor?: number;
  /** The least that g may be, below 0; none unless given. Where it holds g back the gradient of the gate is 0. */
  readonly gateFloor?: number;
  /** A silu gate on the output; true unless given. */
  readonly outputGate?: boolean;
}

const who = "gla";

/**
 * The layer of gated linear attention (arXiv 2312.06635, section 4.4): g = logσ(W₂W₁x + b)/16 per key channel, a norm per
 * head gated by silu.
 */
export class GatedLinearLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly gProj: Linear | undefined;
  readonly gkProj: readonly [Linear, Linear];
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #divisor: number;
  readonly #floor: number | undefined;

  constructor(options: GatedLinearOptions) {
    checkOptions(who, options, ["gateRank", "gateDivisor", "gateFloor", "outputGate"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / (2 * H), V: D / H }));
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    const { gateRank = 16, gateDivisor = 16, gateFloor, outputGate = true } = options;
    if (gateFloor !== undefined && !(gateFloor < 0))
      throw new ConfigError(`[${who}] gateFloor is a log decay: expected a number below 0, got ${gateFloor}`);
    this.stateSpec = { state: { shape: [HV, K, V], cache: false } };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.gProj = outputGate ? new Linear(D, HV * V) : undefined;
    this.gkProj = [new Linear(D, gateRank), new Linear(gateRank, HV * K, { bias: true })];
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
    this.#divisor = gateDivisor;
    this.#floor = gateFloor;
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const [down, up] = this.gkProj;
    const decays = scale(logSigmoid(up.forward(down.forward(x))), 1 / this.#divisor);
    const g =
      this.#floor === undefined ? decays : scale(relu(scale(decays, 1, -this.#floor)), 1, this.#floor);
    const o = stream.recur(rule, {
      q: toHeads(this.qProj.forward(x), H),
      k: toHeads(this.kProj.forward(x), H),
      v: toHeads(this.vProj.forward(x), HV),
      g: toHeads(g, HV),
    });
    const gate = this.gProj && toHeads(this.gProj.forward(x), HV);
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, gate)));
  }
}
