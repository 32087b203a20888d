import { exp } from "../../ops/activation/index.ts";
import type { FeatureMap } from "./feature-map.ts";
import { exp as pointwise } from "./pointwise.ts";

/** exp(x), channel by channel. Overflows above 88; norms or small weights keep it below. */
export const expMap: FeatureMap = {
  id: "exp",
  equation: "exp(x)",
  width: (keyWidth) => keyWidth,
  isPositive: true,
  isDifferentiable: true,
  pointwise,
  apply: exp,
};
