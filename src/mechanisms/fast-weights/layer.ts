import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { sigmoid } from "../../ops/activation/index.ts";
import type { FeatureMap } from "../feature-maps/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { mapOf, rule, sumNormalized } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface FastWeightsOptions extends LayerOptions {
  /** ν of DPFP; 3 unless given. The state has 2νK rows. */
  readonly rolls?: number;
}

const who = "fast-weights";

/** The layer of fast weight programmers (arXiv 2102.11174): DPFP with sum normalisation, beta = σ(b). */
export class FastWeightsLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly bProj: Linear;
  readonly oProj: Linear;
  readonly #map: FeatureMap;

  constructor(options: FastWeightsOptions) {
    checkOptions(who, options, ["rolls"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    this.#map = mapOf(options.rolls);
    this.stateSpec = { state: { shape: [HV, this.#map.width(K), V], cache: false } };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.bProj = new Linear(D, HV);
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const o = stream.recur(rule, {
      q: sumNormalized(this.#map, toHeads(this.qProj.forward(x), H)),
      k: sumNormalized(this.#map, toHeads(this.kProj.forward(x), H)),
      v: toHeads(this.vProj.forward(x), HV),
      beta: sigmoid(this.bProj.forward(x)),
    });
    return this.oProj.forward(fromHeads(o));
  }
}
