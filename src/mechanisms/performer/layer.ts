import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import type { Random } from "../../tensor/random.ts";
import { favorMap } from "../feature-maps/favor.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { fullRule, performerInputs, rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface PerformerOptions extends LayerOptions {
  /** Random features m; ⌊K ln K⌋ unless given. The state has m rows. */
  readonly features?: number;
  /** The share of training steps that begin with features drawn anew, 0 to 1; 0 unless given. */
  readonly redraw?: number;
}

const who = "performer";

/**
 * A layer of Performer attention (arXiv 2009.14794): softmax attention estimated by m positive orthogonal random
 * features. `features` is drawn once, saved with the weights and never trained; `redraw` draws it anew, in training from the
 * random source of the call, so that a run that resumes has the same features.
 */
export class PerformerLayer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly features: Parameter;
  readonly oProj: Linear;
  readonly #redraw: number;

  constructor(options: PerformerOptions) {
    checkOptions(who, options, ["features", "redraw"]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes, { full: true });
    const { D, H, HV, K, V } = sizes;
    const { redraw = 0 } = options;
    if (!(redraw >= 0 && redraw <= 1))
      throw new ConfigError(`[${who}] redraw is a share of training steps: expected 0 to 1, got ${redraw}`);
    this.#redraw = redraw;
    const count = favorMap.width(K, options.features);
    this.stateSpec = {
      state: { shape: [HV, count, V], cache: false },
      normalizer: { shape: [HV, count], cache: false },
      maximum: { shape: [HV], cache: false, initial: Number.NEGATIVE_INFINITY },
    };
    this.qProj = new Linear(D, H * K);
    this.kProj = new Linear(D, H * K);
    this.vProj = new Linear(D, HV * V);
    this.features = new Parameter([count, K], {
      init: (_, random) => favorMap.draw!(K, random, count).values,
      decays: false,
    });
    this.oProj = new Linear(HV * V, D);
  }

  override redraw(random: Random): void {
    const [count, K] = this.features.shape as [number, number];
    this.features.set(this.features.value.device, favorMap.draw!(K, random, count).values);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const { training, random } = stream.context;
    if (this.#redraw > 0 && training && random !== undefined && random.next() < this.#redraw)
      this.redraw(random.fork(`${random.stream} features`));
    const { causal } = stream;
    const given = {
      q: toHeads(this.qProj.forward(x), H),
      k: toHeads(this.kProj.forward(stream.source), H),
      v: toHeads(this.vProj.forward(stream.source), HV),
      features: this.features.value.detach(),
      initialMaximum: stream.carried("maximum"),
    };
    const { inputs, finalMaximum } = performerInputs(given, causal, stream.cuSeqlens);
    const o = stream.recur(causal ? rule : fullRule, inputs);
    stream.leave("maximum", finalMaximum);
    return this.oProj.forward(fromHeads(o));
  }
}
