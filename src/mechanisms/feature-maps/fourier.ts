import { cos, sin } from "../../ops/activation/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { scale } from "../../ops/scale/index.ts";
import { given } from "./favor.ts";
import type { FeatureMap } from "./feature-map.ts";

/**
 * Random Fourier features (Rahimi & Recht, Random features for large-scale kernel machines, 2007):
 * φ(x) = [cos(ωx), sin(ωx)]/√m with ω ~ N(0, I). The mean of φ(q)·φ(k) over draws is exp(−|q − k|²/2); a single one may
 * be below 0.
 */
export const fourierMap: FeatureMap = {
  id: "fourier",
  equation: "[cos(ωx), sin(ωx)]/√m (Rahimi & Recht, 2007)",
  width: (keyWidth, count = keyWidth) => 2 * count,
  isPositive: false,
  isDifferentiable: true,
  draw: (keyWidth, random, count = keyWidth) => ({
    values: random.normal(new Float64Array(count * keyWidth)),
    count,
  }),
  apply: (x, projection) => {
    const rows = given("fourier", projection);
    const angles = matmul(x, rows, { transposeB: true });
    return scale(concat([cos(angles), sin(angles)], -1), rows.shape[0]! ** -0.5);
  },
};
