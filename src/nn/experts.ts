import { isRecording } from "../autograd/tape.ts";
import { type Tensor, tensor } from "../autograd/tensor.ts";
import { ConfigError, checkWord } from "../errors.ts";
import { sigmoid } from "../ops/activation/index.ts";
import { add, divide, multiply } from "../ops/arithmetic/index.ts";
import { embedding } from "../ops/embedding/index.ts";
import { mean, sum } from "../ops/reduce/index.ts";
import { reshape } from "../ops/reshape/index.ts";
import { scale } from "../ops/scale/index.ts";
import { scatterRows } from "../ops/scatter-rows/index.ts";
import { softmax } from "../ops/softmax/index.ts";
import { GatedMlp } from "./gated-mlp.ts";
import { zerosInit } from "./init.ts";
import { Linear } from "./linear.ts";
import { Module, Parameter } from "./module.ts";
import { type Choice, chooseExperts } from "./routing.ts";

/** A mixture of experts as data. */
export interface ExpertsOptions {
  readonly kind: "experts";
  readonly experts: number;
  readonly perToken: number;
  readonly width: number;
  /** Scores by softmax over all experts, or by sigmoid with a learned correction of the choice; softmax unless given. */
  readonly router?: "softmax" | "sigmoid";
  readonly renormalize?: boolean;
  readonly routedScale?: number;
  readonly groups?: number;
  readonly groupsPerToken?: number;
  readonly sharedWidth?: number;
  readonly sharedGate?: boolean;
  readonly denseLayers?: number;
  readonly denseWidth?: number;
}

/**
 * y = Σ_{e ∈ top-k} w_e · expert_e(x) (+ shared(x)): every token visits the experts its router scores highest.
 *
 * The choice itself carries no gradient, the weights w do. The balance loss is E · Σ_e f_e p_e with f_e the share of
 * visits and p_e the mean score of expert e (Switch Transformer, arXiv 2101.03961v3, eq. 4); 1 when all are even.
 */
export class Experts extends Module {
  readonly router: Linear;
  /** Added to the scores for the choice only, as DeepSeek-V3 corrects load (arXiv 2412.19437v2, section 2.1.2). */
  readonly correction: Parameter | undefined;
  readonly experts: readonly GatedMlp[];
  readonly shared: GatedMlp | undefined;
  readonly sharedGate: Linear | undefined;
  readonly #options: ExpertsOptions;

  constructor(width: number, options: ExpertsOptions) {
    super();
    const { experts, perToken, groups = 1, groupsPerToken = groups } = options;
    if (!(perToken >= 1 && perToken <= experts) || experts % groups !== 0 || !(groupsPerToken <= groups)) {
      throw new ConfigError(
        `[experts] a token visits some of the experts, groups are equal: got ${perToken} of ${experts} experts, ${groupsPerToken} of ${groups} groups`,
      );
    }
    checkWord("experts", "router", options.router, ["softmax", "sigmoid"]);
    this.#options = options;
    this.router = new Linear(width, experts);
    this.correction =
      options.router === "sigmoid" ? new Parameter([experts], { init: zerosInit, decays: false }) : undefined;
    this.experts = Array.from({ length: experts }, () => new GatedMlp(width, options.width));
    this.shared = options.sharedWidth ? new GatedMlp(width, options.sharedWidth) : undefined;
    this.sharedGate = options.sharedWidth && options.sharedGate ? new Linear(width, 1) : undefined;
  }

  /** `x [..., D]` → the same shape, and the balance loss while training. */
  forward(x: Tensor, training: boolean): { y: Tensor; balance: Tensor | undefined } {
    const width = x.shape.at(-1)!;
    const rows = reshape(x, [-1, width]);
    const logits = this.router.forward(rows);
    const scores = this.#options.router === "sigmoid" ? sigmoid(logits) : softmax(logits);
    const choice = chooseExperts(scores.dataSync(), this.correction?.value.dataSync(), this.#options);
    let y = this.visit(rows, scores, choice);
    if (this.shared !== undefined) {
      const own = this.shared.forward(rows).y;
      y = add(y, this.sharedGate ? multiply(own, sigmoid(this.sharedGate.forward(rows))) : own);
    }
    const balance = training && isRecording() ? this.balance(scores, choice) : undefined;
    return { y: reshape(y, x.shape), balance };
  }

  private visit(rows: Tensor, scores: Tensor, choice: Choice): Tensor {
    const { device } = rows;
    const { experts, renormalize = true, routedScale = 1 } = this.#options;
    const count = rows.shape[0]!;
    const ids = (values: Int32Array): Tensor => tensor(device, values, [values.length], { dtype: "int32" });
    const flat = reshape(scores, [count * experts, 1]);
    // [tokens, k] weights of the visited experts, in the order of the visits of each token
    let weights = reshape(embedding(ids(choice.scores), flat), [count, this.#options.perToken]);
    if (renormalize) weights = divide(weights, scale(sum(weights, { axes: -1, keepDims: true }), 1, 1e-20));
    const column = reshape(routedScale === 1 ? weights : scale(weights, routedScale), [-1, 1]);
    let y: Tensor | undefined;
    for (const [e, visits] of choice.visits.entries()) {
      if (visits.length === 0) continue;
      const tokens = ids(visits.map((visit) => Math.floor(visit / this.#options.perToken)));
      const output = this.experts[e]!.forward(embedding(tokens, rows)).y;
      const part = scatterRows(multiply(output, embedding(ids(visits), column)), tokens, count);
      y = y === undefined ? part : add(y, part);
    }
    return y ?? scale(rows, 0);
  }

  private balance(scores: Tensor, choice: Choice): Tensor {
    const { experts } = this.#options;
    const total = choice.scores.length;
    const shares = choice.visits.map((visits) => (experts * visits.length) / Math.max(1, total));
    const means = mean(scores, { axes: 0 });
    return sum(multiply(means, tensor(scores.device, shares, [experts], { dtype: scores.dtype })));
  }
}
