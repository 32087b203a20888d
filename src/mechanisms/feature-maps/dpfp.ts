import type { Tensor } from "../../autograd/tensor.ts";
import { relu } from "../../ops/activation/index.ts";
import { multiply } from "../../ops/arithmetic/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { negate } from "../../ops/scale/index.ts";
import { slice } from "../../ops/split/index.ts";
import type { FeatureMap } from "./feature-map.ts";

/** Feature i is y_{i−shift}, positions counted in a ring. */
function roll(y: Tensor, shift: number): Tensor {
  const width = y.shape.at(-1)!;
  const by = shift % width;
  return by === 0 ? y : concat([slice(y, -1, width - by), slice(y, -1, 0, width - by)], -1);
}

/**
 * Deterministic parameter-free projection: with y = [relu(x), relu(−x)] of length 2K, the products y_i · y_{i−r} for
 * rolls r = 1 … ν (Schlag et al., arXiv 2102.11174v3). Few features are above 0 at once.
 */
export function dpfpMap(rolls: number): FeatureMap {
  return {
    id: `dpfp-${rolls}`,
    equation: "y_i · y_{i−r}, y = [relu(x), relu(−x)], r = 1 … ν (Schlag et al., arXiv 2102.11174v3)",
    width: (keyWidth) => 2 * rolls * keyWidth,
    isPositive: false,
    isDifferentiable: true,
    apply: (x) => {
      const y = concat([relu(x), relu(negate(x))], -1);
      return concat(
        Array.from({ length: rolls }, (_, i) => multiply(y, roll(y, i + 1))),
        -1,
      );
    },
  };
}

/** DPFP with three rolls. */
export const dpfp3Map: FeatureMap = /* @__PURE__ */ dpfpMap(3);
