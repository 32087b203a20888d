import type { Tensor } from "../../autograd/tensor.ts";
import { exp } from "../../ops/activation/index.ts";
import { multiply, subtract } from "../../ops/arithmetic/index.ts";
import { max } from "../../ops/max/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { favorLogs } from "../feature-maps/favor.ts";
import type { RecurrenceInputs, RecurrenceRule } from "../recurrence/rule.ts";
import { runningMaximum } from "./running-maximum.ts";

/** Additive write over the normaliser; the decay is what a rising maximum takes from what was kept in its unit. */
export const rule: RecurrenceRule = { decay: "scalar", write: "add", normalize: true, scale: 1 };
/** Where every token sees all, there is one maximum for all. */
export const fullRule: RecurrenceRule = { ...rule, decay: "none" };

/** Inputs of the mechanism before its map. */
export interface PerformerInputs {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  /** `[F, K]`, rows ω. */
  readonly features: Tensor;
  readonly initialState?: Tensor | undefined;
  readonly initialNormalizer?: Tensor | undefined;
  readonly initialMaximum?: Tensor | undefined;
}

const widened = (x: Tensor): Tensor => reshape(x, [...x.shape, 1]);

/**
 * Queries and keys as positive features in units that cannot overflow: keys by the largest key feature so far, M_t, and
 * queries by their own largest. A state kept in the unit exp(M_{t−1}) is brought to exp(M_t) by the factor
 * exp(M_{t−1} − M_t) <= 1, which is a decay per token; M leaves no trace in the quotient and has no gradient.
 */
export function performerInputs(
  inputs: PerformerInputs,
  causal: boolean,
  cuSeqlens: Tensor | undefined,
): { inputs: RecurrenceInputs; finalMaximum: Tensor } {
  const { v, features, initialState, initialNormalizer, initialMaximum: initial } = inputs;
  const times = v.shape[2]! / inputs.k.shape[2]!;
  const own = repeatHeads(favorLogs(inputs.q, features), times);
  const logs = repeatHeads(favorLogs(inputs.k, features), times);
  const { course, rise, kept, final } = runningMaximum(logs, { initial, cuSeqlens, whole: !causal });
  const mapped = {
    q: exp(subtract(own, max(own.detach(), { axes: -1, keepDims: true }))),
    k: exp(subtract(logs, widened(course))),
    v,
  };
  if (causal) {
    return { inputs: { ...mapped, g: rise, initialState, initialNormalizer }, finalMaximum: final };
  }
  const factor = exp(kept);
  const carried = {
    initialState: initialState && multiply(initialState, widened(widened(factor))),
    initialNormalizer: initialNormalizer && multiply(initialNormalizer, widened(factor)),
  };
  return { inputs: { ...mapped, ...carried }, finalMaximum: final };
}
