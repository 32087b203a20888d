import { eluPlusOne } from "../../ops/activation/index.ts";
import type { FeatureMap } from "./feature-map.ts";
import { eluPlusOne as pointwise } from "./pointwise.ts";

/** elu(x) + 1: x + 1 above 0 and exp(x) below, never (exp(x) − 1) + 1, which loses what is small. */
export const eluPlusOneMap: FeatureMap = {
  id: "elu+1",
  equation: "elu(x) + 1 (Katharopoulos et al., arXiv 2006.16236v3)",
  width: (keyWidth) => keyWidth,
  isPositive: true,
  isDifferentiable: true,
  pointwise,
  apply: eluPlusOne,
};
