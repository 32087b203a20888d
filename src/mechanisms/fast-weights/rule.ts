import type { Tensor } from "../../autograd/tensor.ts";
import { divide } from "../../ops/arithmetic/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { scale } from "../../ops/scale/index.ts";
import { dpfpMap, type FeatureMap } from "../feature-maps/index.ts";
import type { RecurrenceRule } from "../recurrence/rule.ts";

/** No decay, delta write on mapped keys, no scale. */
export const rule: RecurrenceRule = { decay: "none", write: "delta", normalize: false, scale: 1 };

/** Features over their sum + 1e-6 (arXiv 2102.11174v3, section 4.2): what is written and read adds up to 1. */
export function sumNormalized(map: FeatureMap, x: Tensor): Tensor {
  const features = map.apply(x);
  return divide(features, scale(sum(features, { axes: -1, keepDims: true }), 1, 1e-6));
}

/** Rolls of DPFP where options do not say. */
export const defaultRolls = 3;

/** DPFP with a number of rolls. */
export const mapOf = (rolls: number = defaultRolls): FeatureMap => dpfpMap(rolls);
