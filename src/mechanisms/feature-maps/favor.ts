import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { exp, square } from "../../ops/activation/index.ts";
import { subtract } from "../../ops/arithmetic/index.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { scale } from "../../ops/scale/index.ts";
import type { Random } from "../../tensor/random.ts";
import type { FeatureMap, Projection } from "./feature-map.ts";

/** ⌊K ln K⌋, at least K: enough for a kernel estimate that rarely is far off. */
export function favorCount(keyWidth: number): number {
  return Math.max(keyWidth, Math.floor(keyWidth * Math.log(keyWidth)));
}

/**
 * Rows ω ~ N(0, I) of width K, orthogonal to each other in blocks of K: directions uniformly distributed, lengths those
 * of independent normal vectors (arXiv 2009.14794v4, section 2), so that every row alone is still N(0, I).
 */
export function orthogonalProjection(keyWidth: number, random: Random, count: number): Projection {
  const values = new Float64Array(count * keyWidth);
  const lengths = random.normal(new Float64Array(count * keyWidth));
  for (let first = 0; first < count; first += keyWidth) {
    const rows = random.orthogonal(new Float64Array(keyWidth * keyWidth), keyWidth, keyWidth);
    values.set(rows.subarray(0, Math.min(keyWidth, count - first) * keyWidth), first * keyWidth);
  }
  for (let row = 0; row < count; row++) {
    const line = values.subarray(row * keyWidth, (row + 1) * keyWidth);
    const length = Math.hypot(...lengths.subarray(row * keyWidth, (row + 1) * keyWidth));
    for (let i = 0; i < keyWidth; i++) line[i] = line[i]! * length;
  }
  return { values, count };
}

/**
 * Logarithms of the positive features: ω·x' − |x'|²/2 − ½ ln m with x' = x K^-¼ (arXiv 2009.14794v4), which
 * cannot overflow. `x [B,T,H,K]`, `projection [m, K]` → `[B,T,H,m]`.
 */
export function favorLogs(x: Tensor, projection: Tensor): Tensor {
  const K = x.shape.at(-1)!;
  const scaled = scale(x, K ** -0.25);
  const half = scale(
    sum(square(scaled), { axes: -1, keepDims: true }),
    0.5,
    Math.log(projection.shape[0]!) / 2,
  );
  return subtract(matmul(scaled, projection, { transposeB: true }), half);
}

/**
 * FAVOR+ (Performer, arXiv 2009.14794v4, section 2): positive features of orthogonal random directions,
 * φ(x) = exp(ω·x' − |x'|²/2)/√m. The mean of φ(q)·φ(k) over draws is exp(q·k/√K), the kernel of softmax attention, and
 * its error falls as 1/√m.
 */
export const favorMap: FeatureMap = {
  id: "favor+",
  equation: "exp(ω·x' − |x'|²/2)/√m, x' = x K^-¼ (Choromanski et al., arXiv 2009.14794v4)",
  width: (keyWidth, count = favorCount(keyWidth)) => count,
  isPositive: true,
  isDifferentiable: true,
  draw: (keyWidth, random, count = favorCount(keyWidth)) => orthogonalProjection(keyWidth, random, count),
  apply: (x, projection) => exp(favorLogs(x, given("favor+", projection))),
};

/** The projection that a random map cannot do without. */
export function given(id: string, projection: Tensor | undefined): Tensor {
  if (projection !== undefined) return projection;
  throw new ConfigError(
    `[${id}] the map needs its random part: expected projection [count, K], got none`,
    "Make one with draw(keyWidth, random) and keep it: another draw is another map.",
  );
}
