import type { Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { unitLength } from "../feature-maps/unit.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface CosineOptions extends LayerOptions {
  /** A norm per head, since sums of cosines grow with the context; true unless given. */
  readonly norm?: boolean;
}

const who = "cosine";

/** A layer of cosine attention (arXiv 2409.18747): q and k at unit length between projections. */
export class CosineLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly oNorm: HeadNorm | undefined;
  readonly oProj: Linear;

  constructor(options: CosineOptions) {
    checkOptions(who, options, ["norm"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes, { full: true });
    const { D, H, HV, K, V } = sizes;
    this.stateSpec = { state: { shape: [HV, K, V], cache: false } };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.oNorm = (options.norm ?? true) ? new HeadNorm(V, options.normEps ?? 1e-5) : undefined;
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const o = stream.recur(rule, {
      q: unitLength(toHeads(this.qProj.forward(x), H)),
      k: unitLength(toHeads(this.kProj.forward(stream.source), H)),
      v: toHeads(this.vProj.forward(stream.source), HV),
    });
    return this.oProj.forward(fromHeads(this.oNorm?.forward(o) ?? o));
  }
}
