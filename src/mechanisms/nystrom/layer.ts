import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { uniformInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { attention } from "../attention/attention-op.ts";
import type { FullInputs } from "../attention/full-forms.ts";
import { forwardFull } from "../attention/full-layer.ts";
import { Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions, type HeadSizes, headSizes } from "../recurrence/recurrent-layer.ts";
import { checkConvolution, checkCounts, defaultIterations, defaultLandmarks, fitting, why } from "./forms.ts";
import { attendLandmarks } from "./landmarks.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface NystromOptions extends LayerOptions {
  /** Landmarks, 64 unless given; shorter sequences have as many as tokens, which is softmax itself. */
  readonly landmarks?: number;
  /** Steps of the pseudo-inverse; 6 unless given. */
  readonly iterations?: number;
  /** Taps of a depthwise convolution of the values over time, odd; none unless given. */
  readonly convWidth?: number;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /** Projections with a bias; false unless given. */
  readonly bias?: boolean;
}

const who = "nystrom";

/**
 * The layer of Nyströmformer (arXiv 2102.03902, section 3): attention by way of landmarks, the means of segments, with the
 * convolution of the values that its authors add where `convWidth` is given. Not causal.
 */
export class NystromLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>> = {};
  readonly sizes: HeadSizes;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly conv: Parameter | undefined;
  readonly oProj: Linear;
  readonly #landmarks: number;
  readonly #iterations: number;
  readonly #scale: number;

  constructor(options: NystromOptions) {
    super();
    checkOptions(who, options, ["landmarks", "iterations", "convWidth", "scale", "bias"]);
    this.sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    const { D, H, HV, K, V } = this.sizes;
    if (HV !== H)
      throw new ConfigError(`[${who}] every head has its own value: expected valueHeads ${H}, got ${HV}`);
    const { bias = false, convWidth } = options;
    this.#landmarks = options.landmarks ?? defaultLandmarks;
    this.#iterations = options.iterations ?? defaultIterations;
    this.#scale = options.scale ?? K ** -0.5;
    checkCounts(who, this.#landmarks, this.#iterations);
    checkConvolution(who, convWidth);
    this.qProj = new Linear(D, H * K, { bias });
    this.kProj = new Linear(D, H * K, { bias });
    this.vProj = new Linear(D, H * V, { bias });
    this.conv =
      convWidth === undefined
        ? undefined
        : new Parameter([H, convWidth], { init: uniformInit(-(convWidth ** -0.5), convWidth ** -0.5) });
    this.oProj = new Linear(H * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    return forwardFull(this, { who, why, attend: (rows) => this.attend(rows) }, x, context);
  }

  private attend(rows: FullInputs): Tensor {
    const choices = {
      landmarks: fitting(this.#landmarks, rows),
      iterations: this.#iterations,
      scale: this.#scale,
      convolution: this.conv?.value,
    };
    return attendLandmarks(rows, choices, (inputs, options) => attention(inputs, options).output);
  }
}
