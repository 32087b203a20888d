/** Rows in sorted order, and each group of them beside the group before. */
import { accumulate, copyInto } from "../../autograd/move.ts";
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, Tensor } from "../../autograd/tensor.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { gatherRows, sumRows } from "../../ops/embedding/index.ts";
import { part } from "../../ops/split/index.ts";

const gatherOp: Op<{ x: Tensor; ids: Tensor }, undefined, { y: Tensor }> = {
  name: "lsh.gather",
  forward: ({ x, ids }) => ({ outputs: { y: gatherRows(ids, x) }, saved: undefined }),
  backward: ({ inputs: { x, ids }, grads: { y } }) => ({ x: y && sumRows(ids, packed(y), x.shape[0]!) }),
};

/** Rows of `x [n,W]` by their numbers `ids [m]` int32, known to be in it → `[m,W]`; gradients add up where rows repeat. */
export function gathered(x: Tensor, ids: Tensor): Tensor {
  return apply(gatherOp, { x, ids }, undefined).y;
}

const pairOp: Op<{ x: Tensor }, number, { y: Tensor }> = {
  name: "lsh.neighbours",
  forward: ({ x }, group) => {
    const [rows, width] = x.shape as [number, number];
    const memory = empty(x.device, [rows + group, width], { dtype: x.dtype });
    copyInto(part(memory, 0, 0, group), full(x.device, [group, width], 0, { dtype: x.dtype }));
    copyInto(part(memory, 0, group, rows), x);
    // Each row of the result begins one group behind the last and reads on into the next: overlapping views.
    const layout = { ...memory.layout, strides: [group * width, width, width, 1] };
    return { outputs: { y: new Tensor(layout, [rows / group, 2 * group, 1, width]) }, saved: undefined };
  },
  backward: ({ inputs: { x }, options: group, grads: { y } }) => {
    if (y === undefined) return {};
    const [rows, width] = x.shape as [number, number];
    const groups = rows / group;
    const dx = empty(x.device, [groups, group, 1, width], { dtype: x.dtype });
    copyInto(dx, part(y, 1, group, group));
    accumulate(part(dx, 0, 0, groups - 1), part(part(y, 1, 0, group), 0, 1, groups - 1));
    return { x: new Tensor({ ...dx.layout, strides: [width, 1] }, x.shape) };
  },
};

/**
 * Every group of rows behind the one before it: `x [F·group,W]` → `[F,2·group,1,W]`, zeros before the first. A copy of x
 * once, each row of it in two places.
 */
export function withGroupBefore(x: Tensor, group: number): Tensor {
  return apply(pairOp, { x }, group).y;
}
