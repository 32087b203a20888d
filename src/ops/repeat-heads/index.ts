import { accumulate, copyInto } from "../../autograd/move.ts";
import { contiguousStrides, empty } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { apply, type Op, type OpEntry, Tensor } from "../op.ts";

/** [..., H, K] read as [..., H, times, K], every copy at the same place. */
function spread(x: Tensor, times: number): Tensor {
  const { storage, offset, strides } = x.layout;
  const head = x.rank - 1;
  return new Tensor({ storage, offset, strides: [...strides.slice(0, head), 0, strides[head]!] }, [
    ...x.shape.slice(0, head),
    times,
    x.shape[head]!,
  ]);
}

/** [..., H·times, K] read as `times` tensors [..., H, K]. */
function copies(y: Tensor, times: number): Tensor[] {
  const head = y.rank - 2;
  const { storage, offset, strides } = y.layout;
  const step = strides[head]!;
  return Array.from({ length: times }, (_, i) => {
    const layout = {
      storage,
      offset: offset + i * step,
      strides: strides.map((stride, axis) => (axis === head ? stride * times : stride)),
    };
    return new Tensor(
      layout,
      y.shape.map((length, axis) => (axis === head ? length / times : length)),
    );
  });
}

const op: Op<{ x: Tensor }, number, { y: Tensor }> = {
  name: "repeat-heads",
  forward: ({ x }, times) => {
    const shape = x.shape.map((length, axis) => (axis === x.rank - 2 ? length * times : length));
    const y = empty(x.device, shape, { dtype: x.dtype });
    const wide = spread(x, times);
    const { storage, offset } = y.layout;
    copyInto(new Tensor({ storage, offset, strides: contiguousStrides(wide.shape) }, wide.shape), wide);
    return { outputs: { y }, saved: undefined };
  },
  backward: ({ inputs: { x }, options: times, grads: { y } }) => {
    if (y === undefined) return {};
    const dx = empty(x.device, x.shape, { dtype: x.dtype });
    for (const [i, copy] of copies(y, times).entries()) (i === 0 ? copyInto : accumulate)(dx, copy);
    return { x: dx };
  },
};

/**
 * Every head `times` times in a row: head j of the result is head `j // times` of x.
 *
 * `x [..., H, K]` → `[..., H·times, K]`, a copy. The gradient adds the copies up.
 *
 * @throws ShapeError when x has fewer than two axes or `times` is not a whole number >= 1.
 * @example
 * const keys = repeatHeads(k, HQ / HKV);
 */
export function repeatHeads(x: Tensor, times: number): Tensor {
  if (x.rank < 2 || !Number.isInteger(times) || times < 1) {
    throw new ShapeError(
      `[repeatHeads] x [..., H, K] and times >= 1 are expected, got x [${x.shape.join(", ")}] and ${times}`,
    );
  }
  return times === 1 ? x : apply(op, { x }, times).y;
}

/** How suites see `repeatHeads`. */
export const repeatHeadsEntry: OpEntry<{ readonly times: number }> = {
  kind: "op",
  name: "repeat-heads",
  kernels: [],
  run: ({ x }, { times }) => ({ y: repeatHeads(x!, times) }),
  cases: [
    {
      name: "thrice",
      inputs: { x: { shape: [2, 17, 2, 5] } },
      options: { times: 3 },
      terms: 1,
      gradientTerms: { x: 3 },
    },
    { name: "once", inputs: { x: { shape: [3, 4] } }, options: { times: 1 }, terms: 1 },
    { name: "empty", inputs: { x: { shape: [0, 4] } }, options: { times: 2 }, terms: 1 },
    { name: "half", inputs: { x: { shape: [3, 4] } }, options: { times: 0.5 }, terms: 1, fails: "E_SHAPE" },
  ],
};
