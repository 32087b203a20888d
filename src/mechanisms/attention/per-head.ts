import type { Tensor } from "../../autograd/tensor.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { permute } from "../../ops/permute/index.ts";
import { reshape } from "../../ops/reshape/index.ts";

/** `x [B,T,H,W]` times a matrix for every head, `[H,W,U]` or, where `transposed`, `[H,U,W]` → `[B,T,H,U]`. */
export function perHead(x: Tensor, matrices: Tensor, transposed: boolean): Tensor {
  const [B, T, H, W] = x.shape as [number, number, number, number];
  const rows = reshape(permute(x, [2, 0, 1, 3]), [H, B * T, W]);
  const y = matmul(rows, matrices, { transposeB: transposed });
  return permute(reshape(y, [H, B, T, y.shape[2]!]), [1, 2, 0, 3]);
}
