import { copyInto } from "../../autograd/move.ts";
import { empty } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { normalizeAxis } from "../../tensor/shape.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";
import { part } from "../split/index.ts";

const op: Op<Record<string, Tensor>, { readonly axis: number; readonly count: number }, { y: Tensor }> = {
  name: "concat",
  forward: (inputs, { axis, count }) => {
    const first = inputs[0]!;
    const parts = Array.from({ length: count }, (_, i) => inputs[i]!);
    const length = parts.reduce((sum, x) => sum + x.shape[axis]!, 0);
    const shape = first.shape.map((whole, i) => (i === axis ? length : whole));
    const y = empty(first.device, shape, { dtype: first.dtype });
    let from = 0;
    for (const x of parts) {
      copyInto(part(y, axis, from, x.shape[axis]!), x);
      from += x.shape[axis]!;
    }
    return { outputs: { y }, saved: undefined };
  },
  backward: ({ inputs, options: { axis, count }, grads }) => {
    const results: Record<string, Tensor | undefined> = {};
    let from = 0;
    for (let i = 0; i < count; i++) {
      const length = inputs[i]!.shape[axis]!;
      results[i] = grads.y && part(grads.y, axis, from, length);
      from += length;
    }
    return results;
  },
};

/**
 * The tensors one after another along an axis.
 *
 * @throws ShapeError when there is none, or when two disagree on another axis.
 * @example
 * const qk = concat([q, k], -1);
 */
export function concat(parts: readonly Tensor[], axis: number): Tensor {
  const first = parts[0];
  if (first === undefined) throw new ShapeError("[concat] at least one tensor is expected, got none");
  const at = normalizeAxis(axis, first.rank, "concat");
  for (const [i, x] of parts.entries()) {
    const fits = x.rank === first.rank && x.shape.every((length, a) => a === at || length === first.shape[a]);
    if (fits && x.dtype === first.dtype) continue;
    throw new ShapeError(
      `[concat] tensors agree but for axis ${axis}: tensor 0 is ${first.dtype} [${first.shape.join(", ")}], tensor ${i} is ${x.dtype} [${x.shape.join(", ")}]`,
    );
  }
  return apply(op, Object.fromEntries(parts.entries()), { axis: at, count: parts.length }).y;
}

/** How suites see `concat`. */
export const concatEntry: OpEntry<{ readonly axis: number }> = {
  kind: "op",
  name: "concat",
  kernels: [],
  run: (inputs, { axis }) => ({ y: concat(Object.values(inputs), axis) }),
  cases: [
    {
      name: "last",
      inputs: { a: { shape: [3, 5] }, b: { shape: [3, 1] }, c: { shape: [3, 33] } },
      options: { axis: -1 },
      terms: 1,
    },
    {
      name: "time",
      inputs: { a: { shape: [2, 3, 4] }, b: { shape: [2, 17, 4] } },
      options: { axis: 1 },
      terms: 1,
    },
    { name: "empty", inputs: { a: { shape: [2, 0] }, b: { shape: [2, 3] } }, options: { axis: 1 }, terms: 1 },
    {
      name: "disagree",
      inputs: { a: { shape: [2, 3] }, b: { shape: [3, 3] } },
      options: { axis: 1 },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};
