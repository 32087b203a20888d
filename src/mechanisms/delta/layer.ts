import { full, type Tensor } from "../../autograd/tensor.ts";
import { Linear } from "../../nn/linear.ts";
import { sigmoid } from "../../ops/activation/index.ts";
import { scale } from "../../ops/scale/index.ts";
import type { LayerOptions } from "../layer.ts";
import { ConvolvedLayer, type ConvolvedOptions } from "../recurrence/convolved-layer.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, headSizes } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface DeltaLayerOptions extends LayerOptions {
  /** Taps of the short convolutions; 4 unless given, and 0 for none. */
  readonly convWidth?: number;
  /** What queries and keys pass through behind their convolution: silu, relu, elu+1 or identity; silu unless given. */
  readonly queryKeyActivation?: ConvolvedOptions["activation"];
  /** What brings queries and keys to one size: l2, or their sum; l2 unless given. */
  readonly queryKeyNorm?: ConvolvedOptions["norm"];
  /** A write strength per token; true unless given, and false for beta = 1. */
  readonly writeStrength?: boolean;
  /** A silu gate on the output; false unless given. */
  readonly outputGate?: boolean;
  /** beta runs to 2 instead of 1, so that a write may turn what was there around. */
  readonly negativeEigenvalues?: boolean;
}

const who = "delta";

/**
 * The layer of DeltaNet (arXiv 2406.06484): q, k and v by short convolutions with silu, q and k at unit length,
 * beta = σ(b), a norm per head.
 */
export class DeltaLayer extends ConvolvedLayer {
  readonly bProj: Linear | undefined;
  readonly gProj: Linear | undefined;
  readonly oNorm: HeadNorm;
  readonly oProj: Linear;
  readonly #strongest: number;

  constructor(options: DeltaLayerOptions) {
    const { convWidth, queryKeyActivation: activation, queryKeyNorm: norm, writeStrength = true } = options;
    checkOptions(who, options, [
      ...["convWidth", "queryKeyActivation", "queryKeyNorm", "writeStrength", "outputGate"],
      "negativeEigenvalues",
    ]);
    const sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    super(who, sizes, { convWidth, activation, norm });
    const { D, HV, V } = sizes;
    this.#strongest = options.negativeEigenvalues ? 2 : 1;
    this.bProj = writeStrength ? new Linear(D, HV) : undefined;
    this.gProj = options.outputGate ? new Linear(D, HV * V) : undefined;
    this.oNorm = new HeadNorm(V, options.normEps ?? 1e-5);
    this.oProj = new Linear(HV * V, D);
  }

  protected mix(x: Tensor, stream: Stream): Tensor {
    const o = stream.recur(rule, { ...this.heads(x, stream), beta: this.strength(x) });
    const gate = this.gProj && toHeads(this.gProj.forward(x), this.sizes.HV);
    return this.oProj.forward(fromHeads(this.oNorm.forward(o, gate)));
  }

  /** beta `[B, T, HV]`. */
  private strength(x: Tensor): Tensor {
    const [B, T] = x.shape as [number, number];
    if (this.bProj === undefined) return full(x.device, [B, T, this.sizes.HV], 1, { dtype: x.dtype });
    const strength = sigmoid(this.bProj.forward(x));
    return this.#strongest === 1 ? strength : scale(strength, this.#strongest);
  }
}
