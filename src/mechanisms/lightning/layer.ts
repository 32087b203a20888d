import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { sigmoid, silu } from "../../ops/activation/index.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { split } from "../../ops/split/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { Constant } from "../recurrence/constant.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { lightningDecays, rule } from "./rule.ts";

const who = "lightning";

/**
 * The lightning attention layer of MiniMax-01 (arXiv 2501.08313): silu on q, k and v, slopes by head and depth, no
 * scale, one norm over all heads, a sigmoid gate.
 *
 * K and V are D/H unless given. `qkvProj` has the rows of head h together: q, k, then v.
 */
export class LightningLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qkvProj: Linear;
  readonly outputGate: Linear;
  readonly norm: HeadNorm;
  readonly outProj: Linear;
  readonly #decays: Constant;

  constructor(options: LayerOptions) {
    checkOptions(who, options);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    const { D, H, HV, K, V } = sizes;
    if (HV !== H) {
      throw new ConfigError(
        `[lightning] valueHeads are the heads: q, k and v of a head lie together in one projection, so expected ${H}, got ${HV}`,
      );
    }
    super(who, sizes);
    this.stateSpec = { state: { shape: [H, K, V], cache: false } };
    this.qkvProj = new Linear(D, H * (2 * K + V));
    this.outputGate = new Linear(D, H * V);
    this.norm = new HeadNorm(H * V, options.normEps ?? 1e-5);
    this.outProj = new Linear(H * V, D);
    this.#decays = new Constant(lightningDecays(H, options.layer, options.layers));
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, K, V } = this.sizes;
    const [q, k, v] = split(toHeads(silu(this.qkvProj.forward(x)), H), [K, K, V], -1);
    const o = stream.recur(rule, { q: q!, k: k!, v: v!, g: this.#decays.on(x.device) });
    const gate = sigmoid(this.outputGate.forward(x));
    return this.outProj.forward(multiply(this.norm.forward(fromHeads(o)), gate));
  }

  override dispose(): void {
    super.dispose();
    this.#decays.dispose();
  }
}
