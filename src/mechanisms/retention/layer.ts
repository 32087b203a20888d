import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { Rotary } from "../../nn/rotary.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { Constant } from "../recurrence/constant.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { retentionDecays, rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K is D/H and V is 2·D/H unless given; K is even. */
export interface RetentionOptions extends LayerOptions {
  /** Base of the rotary positions; 10,000 unless given. */
  readonly rotaryBase?: number;
  /** A silu gate on the output; true unless given. */
  readonly outputGate?: boolean;
}

const who = "retention";

/**
 * The multi-scale retention of RetNet (arXiv 2307.08621): rotary q and k, decays 1 − 2^(−5−h), a norm per head
 * instead of a normaliser, a swish gate.
 */
export class RetentionLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly gProj: Linear | undefined;
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #rotary: Rotary;
  readonly #decays: Constant;

  constructor(options: RetentionOptions) {
    checkOptions(who, options, ["rotaryBase", "outputGate"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: (2 * D) / H }));
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    this.stateSpec = { state: { shape: [HV, K, V], cache: false } };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.gProj = (options.outputGate ?? true) ? new Linear(D, HV * V) : undefined;
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
    this.#rotary = new Rotary({ width: K, base: options.rotaryBase ?? 10_000 });
    this.#decays = new Constant(retentionDecays(HV));
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const { positions, last } = stream.positions();
    const turned = (y: Tensor): Tensor => this.#rotary.forward(toHeads(y, H), positions, last);
    const o = stream.recur(rule, {
      q: turned(this.qProj.forward(x)),
      k: turned(this.kProj.forward(x)),
      v: toHeads(this.vProj.forward(x), HV),
      g: this.#decays.on(x.device),
    });
    const gate = this.gProj && toHeads(this.gProj.forward(x), HV);
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, gate)));
  }

  override dispose(): void {
    super.dispose();
    this.#rotary.dispose();
    this.#decays.dispose();
  }
}
