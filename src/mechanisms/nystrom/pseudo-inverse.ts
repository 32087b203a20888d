import { type Tensor, tensor } from "../../autograd/tensor.ts";
import { divide, subtract } from "../../ops/arithmetic/index.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { max } from "../../ops/max/index.ts";
import { transpose } from "../../ops/permute/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { scale } from "../../ops/scale/index.ts";

/**
 * The pseudo-inverse of matrices of weights by Z ← Z/4 (13I − AZ(15I − AZ(7I − AZ))) from Z = Aᵀ / (largest column sum of
 * A), the sum of each matrix on its own (Nyströmformer, arXiv 2102.03902v3).
 *
 * `a [...,m,m]`, rows that sum to 1 → the same shape. Costs 4·m³ multiply-adds a step.
 */
export function pseudoInverse(a: Tensor, steps: number): Tensor {
  const m = a.shape.at(-1)!;
  const columns = sum(a, { axes: -2, keepDims: true });
  let z = divide(transpose(a, -2, -1), max(columns, { axes: -1, keepDims: true }));
  const eye = (c: number): Tensor => {
    const values = new Float64Array(m * m);
    for (let i = 0; i < m; i++) values[i * m + i] = c;
    return tensor(a.device, values, [m, m], { dtype: a.dtype });
  };
  const [thirteen, fifteen, seven] = [eye(13), eye(15), eye(7)];
  for (let step = 0; step < steps; step++) {
    const az = matmul(a, z);
    const inner = subtract(fifteen, matmul(az, subtract(seven, az)));
    z = scale(matmul(z, subtract(thirteen, matmul(az, inner))), 0.25);
  }
  return z;
}
