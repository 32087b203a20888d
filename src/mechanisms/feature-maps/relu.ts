import { relu } from "../../ops/activation/index.ts";
import type { FeatureMap } from "./feature-map.ts";
import { relu as pointwise } from "./pointwise.ts";

/** max(x, 0). Tokens may share no feature: the normaliser can vanish, and what it divides is 0 then. */
export const reluMap: FeatureMap = {
  id: "relu",
  equation: "max(x, 0)",
  width: (keyWidth) => keyWidth,
  isPositive: false,
  isDifferentiable: true,
  pointwise,
  apply: relu,
};
