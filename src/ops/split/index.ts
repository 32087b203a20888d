import { copyInto } from "../../autograd/move.ts";
import { empty, full } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { normalizeAxis } from "../../tensor/shape.ts";
import { apply, type Op, type OpEntry, Tensor, type Tensors } from "../op.ts";

interface Parts {
  readonly axis: number;
  /** First position and length of each part. */
  readonly parts: readonly (readonly [from: number, length: number])[];
}

/** The part of x that begins at `from` of an axis, as a view. No gradient of its own. */
export function part(x: Tensor, axis: number, from: number, length: number): Tensor {
  const { storage, offset, strides } = x.layout;
  const shape = x.shape.map((whole, i) => (i === axis ? length : whole));
  return new Tensor({ storage, offset: offset + from * strides[axis]!, strides }, shape);
}

const op: Op<{ x: Tensor }, Parts, Record<string, Tensor>> = {
  name: "split",
  forward: ({ x }, { axis, parts }) => {
    const outputs: Record<string, Tensor> = {};
    for (const [i, [from, length]] of parts.entries()) outputs[i] = part(x, axis, from, length);
    return { outputs, saved: undefined };
  },
  backward: ({ inputs: { x }, options: { axis, parts }, grads }) => {
    const covered = parts.reduce((sum, [, length], i) => sum + (grads[i] === undefined ? 0 : length), 0);
    const options = { dtype: x.dtype };
    const dx =
      covered === x.shape[axis] ? empty(x.device, x.shape, options) : full(x.device, x.shape, 0, options);
    for (const [i, [from, length]] of parts.entries()) {
      const grad = grads[i];
      if (grad !== undefined) copyInto(part(dx, axis, from, length), grad);
    }
    return { x: dx };
  },
};

/**
 * x cut into parts along an axis: part i holds `lengths[i]` positions.
 *
 * All parts are views, and their gradients meet in one tensor: cutting a fused projection into q, k and v this way
 * costs one pass over the gradient.
 *
 * @throws ShapeError when the lengths do not add up to the length of the axis.
 * @example
 * const [q, k, v] = split(qkv, [H * K, H * K, HV * V], -1);
 */
export function split(x: Tensor, lengths: readonly number[], axis: number): Tensor[] {
  const at = normalizeAxis(axis, x.rank, "split");
  let from = 0;
  const parts = lengths.map((length) => {
    from += length;
    return [from - length, length] as const;
  });
  if (from !== x.shape[at] || lengths.some((length) => !Number.isInteger(length) || length < 0)) {
    throw new ShapeError(
      `[split] lengths add up to axis ${axis} of x [${x.shape.join(", ")}]: expected ${x.shape[at]}, got ${lengths.join(" + ")} = ${from}`,
    );
  }
  const outputs = apply(op, { x }, { axis: at, parts });
  return lengths.map((_, i) => outputs[i]!);
}

/**
 * Positions `from` to `to` (exclusive) of an axis; negative ones count from the end. A view.
 *
 * @throws ShapeError when the range leaves the axis.
 * @example
 * const last = slice(x, 1, -1); // [B, 1, D]
 */
export function slice(x: Tensor, axis: number, from: number, to?: number): Tensor {
  const at = normalizeAxis(axis, x.rank, "slice");
  const length = x.shape[at]!;
  const begin = from < 0 ? from + length : from;
  const end = to === undefined ? length : to < 0 ? to + length : to;
  if (!Number.isInteger(begin) || !Number.isInteger(end) || begin < 0 || end > length || begin > end) {
    throw new ShapeError(
      `[slice] the range lies inside axis ${axis} of x [${x.shape.join(", ")}], got ${from} to ${to ?? "the end"}`,
    );
  }
  return apply(op, { x }, { axis: at, parts: [[begin, end - begin]] })[0]!;
}

const named = (parts: readonly Tensor[]): Tensors => Object.fromEntries(parts.map((y, i) => [`y${i}`, y]));

/** How suites see `split`. */
export const splitEntry: OpEntry<{ readonly lengths: readonly number[]; readonly axis: number }> = {
  kind: "op",
  name: "split",
  kernels: [],
  run: ({ x }, { lengths, axis }) => named(split(x!, lengths, axis)),
  cases: [
    {
      name: "q k v",
      inputs: { x: { shape: [2, 5, 17] } },
      options: { lengths: [6, 6, 5], axis: -1 },
      terms: 1,
    },
    {
      name: "time",
      inputs: { x: { shape: [2, 33, 3] } },
      options: { lengths: [1, 0, 32], axis: 1 },
      terms: 1,
    },
    { name: "empty", inputs: { x: { shape: [3, 0] } }, options: { lengths: [0, 0], axis: 1 }, terms: 1 },
    {
      name: "short",
      inputs: { x: { shape: [4] } },
      options: { lengths: [1, 2], axis: 0 },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};

/** How suites see `slice`. */
export const sliceEntry: OpEntry<{ readonly axis: number; readonly from: number; readonly to?: number }> = {
  kind: "op",
  name: "slice",
  kernels: [],
  run: ({ x }, { axis, from, to }) => ({ y: slice(x!, axis, from, to) }),
  cases: [
    { name: "inside", inputs: { x: { shape: [3, 17, 5] } }, options: { axis: 1, from: 3, to: 9 }, terms: 1 },
    { name: "from the end", inputs: { x: { shape: [3, 65] } }, options: { axis: -1, from: -1 }, terms: 1 },
    { name: "empty", inputs: { x: { shape: [3, 0] } }, options: { axis: 0, from: 1 }, terms: 1 },
    {
      name: "outside",
      inputs: { x: { shape: [4] } },
      options: { axis: 0, from: 2, to: 7 },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};
