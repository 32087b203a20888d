import type { Tensor } from "../../autograd/tensor.ts";
import { zerosInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { logSigmoid, sigmoid, silu } from "../../ops/activation/index.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { transpose } from "../../ops/permute/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import { softmax } from "../../ops/softmax/index.ts";
import { slice } from "../../ops/split/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { boundedGate, rule } from "./rule.ts";

const who = "hgrn2";

/** What layers have learned to keep at least, each more than the one before it: one table for all of a model. */
export class LowerBounds extends Module {
  readonly table: Parameter;

  constructor(layers: number, width: number) {
    super();
    this.table = new Parameter([layers, width], { init: zerosInit, decays: false });
  }

  /** `[F]` in [0, 1): the shares of layers 1 to `layer` of a softmax over the layers; undefined for the first, 0. */
  of(layer: number): Tensor | undefined {
    if (layer === 0) return undefined;
    const shares = softmax(transpose(this.table.value, 0, 1));
    return sum(slice(shares, 1, 1, layer + 1), { axes: 1 });
  }
}

/**
 * The layer of HGRN2 (arXiv 2404.07904, section 3.2): q by silu, forget gates f = b + (1 − b)·σ(x) over a bound b that
 * rises with depth, keys 1 − f, one norm over all heads. K and V are D/H unless given.
 */
export class Hgrn2Layer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly qProj: Linear;
  readonly fProj: Linear;
  readonly iProj: Linear;
  readonly lowerBounds: LowerBounds;
  readonly gNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #layer: number;

  constructor(options: LayerOptions) {
    checkOptions(who, options);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    const { layer = 0, layers = layer + 1, shared } = options;
    this.#layer = layer;
    this.stateSpec = { state: { shape: [HV, K, V], cache: false } };
    this.qProj = new Linear(D, H * K);
    this.fProj = new Linear(D, HV * K);
    this.iProj = new Linear(D, HV * V);
    const known = shared?.get(who);
    this.lowerBounds = known instanceof LowerBounds ? known : new LowerBounds(layers, HV * K);
    shared?.set(who, this.lowerBounds);
    this.gNorm = new HeadNorm(HV * V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const { H, HV } = this.sizes;
    const f = this.fProj.forward(x);
    const bound = this.lowerBounds.of(this.#layer);
    const free = sigmoid(negate(f));
    const k = bound === undefined ? free : multiply(free, scale(bound, -1, 1));
    const g = bound === undefined ? logSigmoid(f) : boundedGate(f, bound);
    const o = stream.recur(rule, {
      q: repeatHeads(toHeads(silu(this.qProj.forward(x)), H), HV / H),
      k: toHeads(k, HV),
      v: toHeads(this.iProj.forward(x), HV),
      g: toHeads(g, HV),
    });
    return this.oProj.forward(this.gNorm.forward(fromHeads(o)));
  }
}
