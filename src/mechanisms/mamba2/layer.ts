import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { onesInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Parameter } from "../../nn/module.ts";
import { ShortConv } from "../../nn/short-conv.ts";
import { exp, relu, softplus } from "../../ops/activation/index.ts";
import { add, multiply, subtract } from "../../ops/arithmetic/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import { split } from "../../ops/split/index.ts";
import type { LayerOptions, StateSpec } from "../layer.ts";
import { defaultConvWidth } from "../recurrence/convolved-layer.ts";
import { decayRateInit, timeStepInit } from "../recurrence/gate-init.ts";
import { HeadNorm } from "../recurrence/head-norm.ts";
import { checkOptions, type HeadSizes, headSizes, RecurrentLayer } from "../recurrence/recurrent-layer.ts";
import { fromHeads, type Stream, toHeads } from "../recurrence/stream.ts";
import { rule } from "./rule.ts";

/**
 * Options of the layer beyond those of every layer. `heads` counts heads of x, as in published configurations; B and C
 * have `groups` heads. The state width K is 128 and V is 2·D/heads unless given.
 */
export interface Mamba2Options extends LayerOptions {
  /** Heads of B and C; 1 unless given. */
  readonly groups?: number;
  /** Taps of the short convolution; 4 unless given. */
  readonly convWidth?: number;
  /** A bias in the convolution; true unless given. */
  readonly convBias?: boolean;
  /** Bounds of the time step; 0 and Infinity unless given. */
  readonly timeStepLimit?: readonly [low: number, high: number];
  /** The norm is over each of so many parts of the inner width; `groups` unless given, and 1 for the whole width. */
  readonly normGroups?: number;
  /** The gate multiplies behind the norm instead of before it; false unless given. */
  readonly normBeforeGate?: boolean;
}

const who = "mamba2";
const ownNames = ["groups", "convWidth", "convBias", "timeStepLimit", "normGroups", "normBeforeGate"];

function sizesOf(options: Mamba2Options): HeadSizes {
  const { groups = 1, heads, valueHeads = heads } = options;
  if (valueHeads !== heads) {
    throw new ConfigError(
      `[mamba2] heads are those of x: expected valueHeads ${heads} or none, got ${valueHeads}`,
      "The heads of B and C are groups.",
    );
  }
  const asked = { ...options, heads: groups, valueHeads: heads };
  return headSizes(who, asked, (D) => ({ K: 128, V: (2 * D) / heads }));
}

/**
 * The layer of Mamba-2 (arXiv 2405.21060, section 7): one projection to z, x, B, C and Δ, a short convolution with silu
 * over x, B and C, Δ = softplus(Δ + dt_bias), y + D·x, a norm of y·silu(z).
 */
export class Mamba2Layer extends RecurrentLayer {
  readonly stateSpec: Readonly<Record<string, StateSpec>>;
  readonly inProj: Linear;
  readonly conv1d: ShortConv;
  readonly dtBias: Parameter;
  readonly aLog: Parameter;
  readonly d: Parameter;
  readonly norm: HeadNorm;
  readonly outProj: Linear;
  readonly #limit: readonly [number, number];

  constructor(options: Mamba2Options) {
    checkOptions(who, options, ownNames);
    const sizes = sizesOf(options);
    super(who, sizes);
    const { D, H, HV, K, V } = sizes;
    const { convWidth = defaultConvWidth, convBias = true, normGroups = H } = options;
    const inner = HV * V;
    const channels = inner + 2 * H * K;
    this.stateSpec = {
      conv: { shape: [convWidth - 1, channels], cache: false },
      state: { shape: [HV, K, V], cache: false },
    };
    this.inProj = new Linear(D, inner + channels + HV);
    this.conv1d = new ShortConv({ channels, width: convWidth, bias: convBias, activation: "silu" });
    this.dtBias = new Parameter([HV], { init: timeStepInit(), decays: false });
    this.aLog = new Parameter([HV], { init: decayRateInit(1, 16), decays: false });
    this.d = new Parameter([HV], { init: onesInit, decays: false });
    const order = options.normBeforeGate ? "norm-first" : "gate-first";
    this.norm = new HeadNorm(inner, options.normEps ?? 1e-5, { groups: normGroups, order });
    this.outProj = new Linear(inner, D);
    this.#limit = options.timeStepLimit ?? [0, Number.POSITIVE_INFINITY];
  }

  protected mix(input: Tensor, stream: Stream): Tensor {
    const { H, HV, K, V } = this.sizes;
    const inner = HV * V;
    const [z, convolved, raw] = split(this.inProj.forward(input), [inner, inner + 2 * H * K, HV], -1);
    const [x, B, C] = split(stream.convolve(this.conv1d, convolved!, "conv"), [inner, H * K, H * K], -1);
    const heads = toHeads(x!, HV);
    const steps = clamped(softplus(add(raw!, this.dtBias.value)), this.#limit);
    const y = stream.recur(rule, {
      q: toHeads(C!, H),
      k: toHeads(B!, H),
      v: multiply(heads, reshape(steps, [...steps.shape, 1])),
      g: multiply(steps, negate(exp(this.aLog.value))),
    });
    const skipped = add(y, multiply(heads, reshape(this.d.value, [HV, 1])));
    return this.outProj.forward(this.norm.forward(fromHeads(skipped), z!));
  }
}

/** x between two bounds; outside them the gradient is 0. */
function clamped(x: Tensor, [low, high]: readonly [number, number]): Tensor {
  const raised = low > 0 ? scale(relu(scale(x, 1, -low)), 1, low) : x;
  return high === Number.POSITIVE_INFINITY ? raised : subtract(raised, relu(scale(x, 1, -high)));
}
