import { copyInto } from "../../autograd/move.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import { apply, type Op, type OpEntry } from "../op.ts";

/** The same values in row-major order without gaps; the tensor itself where it already is. No gradient of its own. */
export function packed(x: Tensor): Tensor {
  if (x.isContiguous) return x;
  const result = empty(x.device, x.shape, { dtype: x.dtype });
  copyInto(result, x);
  return result;
}

const op: Op<{ x: Tensor }, undefined, { y: Tensor }> = {
  name: "contiguous",
  forward: ({ x }) => ({ outputs: { y: packed(x) }, saved: undefined }),
  backward: ({ grads }) => ({ x: grads.y }),
};

/**
 * The same values in row-major order without gaps.
 *
 * `x [...]` any layout of at most six axes → the same shape. A copy where one is needed, else a view of x.
 * Cost: the bytes of x once read and once written. The gradient passes unchanged.
 *
 * @example
 * const rows = contiguous(transpose(x, 0, 1));
 */
export function contiguous(x: Tensor): Tensor {
  if (x.isContiguous) return x;
  return apply(op, { x }, undefined).y;
}

/** How suites see `contiguous`. */
export const contiguousEntry: OpEntry<undefined> = {
  kind: "op",
  name: "contiguous",
  kernels: [],
  run: ({ x }) => ({ y: contiguous(x!) }),
  cases: [0, 1, 3, 17, 65].map((n) => ({
    name: `n=${n}`,
    inputs: { x: { shape: [2, n, 3] } },
    options: undefined,
    terms: 1,
  })),
};
