import { softplus } from "../../ops/activation/index.ts";
import type { FeatureMap } from "./feature-map.ts";
import { softplus as pointwise } from "./pointwise.ts";

/** log(1 + exp(x)): a smooth relu that never is 0. */
export const softplusMap: FeatureMap = {
  id: "softplus",
  equation: "log(1 + exp(x))",
  width: (keyWidth) => keyWidth,
  isPositive: true,
  isDifferentiable: true,
  pointwise,
  apply: softplus,
};
