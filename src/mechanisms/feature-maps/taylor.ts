import { full } from "../../autograd/tensor.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { scale } from "../../ops/scale/index.ts";
import type { FeatureMap } from "./feature-map.ts";

/**
 * φ(q)·φ(k) = 1 + s + s²/2 with s = q·k/√K: exp to second order (Based, arXiv 2402.18668v2, section 4.1), as 1, K linear
 * and K² quadratic features. The kernel is never below ½.
 */
export const taylorMap: FeatureMap = {
  id: "taylor-2",
  equation: "[1, x K^-¼, x ⊗ x / √(2K)] (Arora et al., arXiv 2402.18668v2)",
  width: (keyWidth) => 1 + keyWidth + keyWidth ** 2,
  isPositive: true,
  isDifferentiable: true,
  apply: (x) => {
    const K = x.shape.at(-1)!;
    const outer = x.shape.slice(0, -1);
    const ones = full(x.device, [...outer, 1], 1, { dtype: x.dtype });
    const left = reshape(scale(x, (2 * K) ** -0.5), [...outer, K, 1]);
    const squares = reshape(multiply(left, reshape(x, [...outer, 1, K])), [...outer, K * K]);
    return concat([ones, scale(x, K ** -0.25), squares], -1);
  },
};
