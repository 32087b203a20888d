import type { Tensor } from "../../autograd/tensor.ts";
import { l2Norm } from "../../ops/norm/index.ts";
import type { FeatureMap } from "./feature-map.ts";

/** x / √(Σ x² + 1e-6) along the last axis: never singular, 0 stays 0. */
export function unitLength(x: Tensor): Tensor {
  return l2Norm(x, { eps: 1e-6 });
}

/** x at unit length: q·k becomes the cosine between the two. */
export const unitMap: FeatureMap = {
  id: "l2",
  equation: "x / √(Σ x² + 1e-6)",
  width: (keyWidth) => keyWidth,
  isPositive: false,
  isDifferentiable: true,
  apply: unitLength,
};
