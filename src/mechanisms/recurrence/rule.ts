/** The three choices that make a member of the family, and how a choice runs on the kernels of the engine. */
import type { Tensor } from "../../autograd/tensor.ts";
import { UnsupportedError } from "../../errors.ts";
import type { FeatureMap } from "../feature-maps/feature-map.ts";
import type { Pointwise } from "../feature-maps/pointwise.ts";
import { addFullRecurrence, addRecurrence } from "./add-op.ts";
import { deltaRecurrence } from "./delta-op.ts";
import type { Decay } from "./problem.ts";

/**
 * One state update: S <- exp(g) ∘ S, then S <- S + k vᵀ (write `add`) or S <- S + k β(v − Sᵀk)ᵀ (write `delta`), then
 * o = scale·Sᵀq, over scale·z·q + eps with z <- exp(g) ∘ z + k where it is normalised.
 */
export interface RecurrenceRule {
  readonly decay: Decay;
  readonly write: "add" | "delta";
  readonly normalize: boolean;
  /** Multiplies q·k where a call does not say. */
  readonly scale: 1 | "K^-0.5";
}

/** How tokens are worked through. */
export type SequenceForm = "recurrent" | "chunkwise" | "parallel";

/** Inputs of the engine by symbol: keys and queries already mapped, unless a call says through what. */
export type RecurrenceInputs = {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly g?: Tensor | undefined;
  readonly beta?: Tensor | undefined;
  readonly initialState?: Tensor | undefined;
  readonly initialNormalizer?: Tensor | undefined;
};

/** What a call says beyond its inputs. */
export interface RecurrenceCall {
  readonly causal?: boolean | undefined;
  readonly scale?: number | undefined;
  readonly eps?: number | undefined;
  readonly chunk?: number | undefined;
  readonly cuSeqlens?: Tensor | undefined;
  /** What q and k pass through, a map without a random part. */
  readonly map?: FeatureMap | undefined;
}

/** Output `[B,T,HV,V]` and the carried state. */
export type RecurrenceOutputs = {
  output: Tensor;
  finalState: Tensor;
  finalNormalizer?: Tensor | undefined;
};

/** Added to the normaliser where a call does not say. */
export const defaultEps = 1e-6;

/** The scale in effect for keys of a width. */
export function scaleOf(rule: RecurrenceRule, keyWidth: number, scale: number | undefined): number {
  return scale ?? (rule.scale === 1 ? 1 : keyWidth ** -0.5);
}

/** Queries and keys, and what the kernels still have to map them by. */
export interface MappedPair {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly map: Pointwise | undefined;
}

/**
 * Queries and keys as the kernels of a rule take them: as they are where these map rows as they read them, and no mapped
 * tensor exists; else mapped.
 */
export function mapPair(
  { write }: RecurrenceRule,
  form: SequenceForm | "step",
  { q, k }: Pick<RecurrenceInputs, "q" | "k">,
  map: FeatureMap | undefined,
): MappedPair {
  if (map === undefined) return { q, k, map };
  if (map.pointwise !== undefined && write === "add" && form !== "parallel")
    return { q, k, map: map.pointwise };
  return { q: map.apply(q), k: map.apply(k), map: undefined };
}

/** A whole sequence through the kernels that a rule needs, with gradients. */
export function runRule(
  rule: RecurrenceRule,
  form: SequenceForm,
  inputs: RecurrenceInputs,
  call: RecurrenceCall = {},
): RecurrenceOutputs {
  const { v, g, beta, initialState, initialNormalizer } = inputs;
  const { q, k, map } = mapPair(rule, form, inputs, call.map);
  const scale = scaleOf(rule, q.shape.at(-1)!, call.scale);
  const { cuSeqlens, chunk } = call;
  const shared = { q, k, v, initialState, cuSeqlens };
  if (call.causal === false) {
    if (rule.decay !== "none" || rule.write !== "add") throw onlyCausal(rule);
    const full = { scale, eps: call.eps ?? defaultEps, normalize: rule.normalize, map };
    return addFullRecurrence({ ...shared, initialNormalizer }, full);
  }
  const { decay } = rule;
  if (rule.write === "delta") {
    return deltaRecurrence({ ...shared, g, beta: beta! }, { form, decay, scale, chunk });
  }
  const { normalize } = rule;
  const options = { form, decay, normalize, scale, eps: call.eps ?? defaultEps, chunk, map };
  return addRecurrence({ ...shared, g, initialNormalizer }, options);
}

function onlyCausal({ decay, write }: RecurrenceRule): UnsupportedError {
  return new UnsupportedError(
    `[recurrence] causal: false: expected decay "none" and write "add", got decay "${decay}" and write "${write}"`,
    "A decay and a delta write follow the order of the tokens; leave causal out.",
  );
}
