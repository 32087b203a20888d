import { ShapeError } from "../../errors.ts";
import { normalizeAxis } from "../../tensor/shape.ts";
import { apply, type Op, type OpEntry, Tensor } from "../op.ts";

function view(x: Tensor, order: readonly number[]): Tensor {
  const { storage, offset, strides } = x.layout;
  return new Tensor(
    { storage, offset, strides: order.map((axis) => strides[axis]!) },
    order.map((axis) => x.shape[axis]!),
  );
}

const op: Op<{ x: Tensor }, readonly number[], { y: Tensor }> = {
  name: "permute",
  forward: ({ x }, order) => ({ outputs: { y: view(x, order) }, saved: undefined }),
  backward: ({ options, grads }) => {
    const back = options.map((_, axis) => options.indexOf(axis));
    return { x: grads.y && view(grads.y, back) };
  },
};

/**
 * The same elements with the axes in another order: axis i of the result is axis `order[i]` of x.
 *
 * A view: nothing moves until an op needs the elements next to each other.
 *
 * @throws ShapeError when `order` does not name every axis of x once.
 * @example
 * const headFirst = permute(q, [0, 2, 1, 3]); // [B, T, H, K] → [B, H, T, K]
 */
export function permute(x: Tensor, order: readonly number[]): Tensor {
  const axes = order.map((axis) => normalizeAxis(axis, x.rank, "permute"));
  if (axes.length !== x.rank || new Set(axes).size !== x.rank) {
    throw new ShapeError(
      `[permute] order names each of the ${x.rank} axes of x once, got [${order.join(", ")}]`,
    );
  }
  return apply(op, { x }, axes).y;
}

/** The same elements with two axes exchanged; a view. */
export function transpose(x: Tensor, first: number, second: number): Tensor {
  const order = x.shape.map((_, axis) => axis);
  const i = normalizeAxis(first, x.rank, "transpose");
  const j = normalizeAxis(second, x.rank, "transpose");
  order[i] = j;
  order[j] = i;
  return permute(x, order);
}

/** How suites see `permute`. */
export const permuteEntry: OpEntry<{ readonly order: readonly number[] }> = {
  kind: "op",
  name: "permute",
  kernels: [],
  run: ({ x }, { order }) => ({ y: permute(x!, order) }),
  cases: [
    { name: "two axes", inputs: { x: { shape: [17, 5] } }, options: { order: [1, 0] }, terms: 1 },
    {
      name: "heads first",
      inputs: { x: { shape: [2, 33, 3, 4] } },
      options: { order: [0, 2, 1, 3] },
      terms: 1,
    },
    { name: "from the end", inputs: { x: { shape: [3, 1, 5] } }, options: { order: [-1, 0, 1] }, terms: 1 },
    { name: "empty", inputs: { x: { shape: [0, 5] } }, options: { order: [1, 0] }, terms: 1 },
    {
      name: "twice",
      inputs: { x: { shape: [3, 5] } },
      options: { order: [0, 0] },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};
