import { contiguousStrides } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, Tensor } from "../op.ts";

function view(x: Tensor, shape: readonly number[]): Tensor {
  const source = packed(x);
  const { storage, offset } = source.layout;
  return new Tensor({ storage, offset, strides: contiguousStrides(shape) }, shape);
}

const op: Op<{ x: Tensor }, readonly number[], { y: Tensor }> = {
  name: "reshape",
  forward: ({ x }, shape) => ({ outputs: { y: view(x, shape) }, saved: undefined }),
  backward: ({ inputs, grads }) => ({ x: grads.y && view(grads.y, inputs.x.shape) }),
};

/**
 * The same elements in row-major order under another shape.
 *
 * `x [...]` → `shape`, where one length may be -1 for whatever is left. A view when x is contiguous, else a copy.
 *
 * @throws ShapeError when the shape does not hold as many elements as x.
 * @example
 * const heads = reshape(x, [B, T, H, K]);
 */
export function reshape(x: Tensor, shape: readonly number[]): Tensor {
  return apply(op, { x }, fill(x, shape)).y;
}

function fill(x: Tensor, shape: readonly number[]): readonly number[] {
  let known = 1;
  let free = -1;
  for (const [axis, length] of shape.entries()) {
    if (length === -1 && free === -1) free = axis;
    else known *= length;
  }
  const filled =
    free === -1
      ? shape
      : shape.map((length, axis) => (axis === free ? (known === 0 ? 0 : x.size / known) : length));
  const size = filled.reduce((product, length) => product * length, 1);
  if (size !== x.size || filled.some((length) => !Number.isInteger(length) || length < 0)) {
    throw new ShapeError(
      `[reshape] x [${x.shape.join(", ")}] has ${x.size} elements: expected a shape that holds as many, got [${shape.join(", ")}]`,
    );
  }
  return filled;
}

/** How suites see `reshape`. */
export const reshapeEntry: OpEntry<{ readonly shape: readonly number[] }> = {
  kind: "op",
  name: "reshape",
  kernels: [],
  run: ({ x }, { shape }) => ({ y: reshape(x!, shape) }),
  cases: [
    {
      name: "split last",
      inputs: { x: { shape: [3, 17, 12] } },
      options: { shape: [3, 17, 4, 3] },
      terms: 1,
    },
    { name: "free axis", inputs: { x: { shape: [2, 5, 6] } }, options: { shape: [-1, 6] }, terms: 1 },
    { name: "empty", inputs: { x: { shape: [0, 4] } }, options: { shape: [2, 0, 2] }, terms: 1 },
    {
      name: "too many",
      inputs: { x: { shape: [2, 3] } },
      options: { shape: [7] },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};
