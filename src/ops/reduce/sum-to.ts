/** Sums of tensors over any axes, as other ops use them: no gradient of their own. */
import { full, Tensor } from "../../autograd/tensor.ts";
import type { Slice } from "../../device/device.ts";
import { type Shape, sizeOf, stridesOf } from "../../tensor/shape.ts";
import { packed } from "../contiguous/index.ts";
import { sumMiddle } from "./sum-kernels.ts";

/** scale · Σ x over the marked axes, or of x·z where z is given (of the same shape), as a tensor of `shape`. */
export function sumOver(x: Tensor, reduced: readonly boolean[], shape: Shape, scale = 1, z?: Tensor): Tensor {
  const { device, dtype } = x;
  if (x.size === 0) return full(device, shape, sizeOf(shape) === 0 ? 0 : 0 * scale, { dtype });
  const lengths: number[] = [];
  const marks: boolean[] = [];
  for (let axis = 0; axis < x.rank; axis++) {
    const last = marks.length - 1;
    if (last >= 0 && marks[last] === reduced[axis]) lengths[last]! *= x.shape[axis]!;
    else {
      lengths.push(x.shape[axis]!);
      marks.push(reduced[axis]!);
    }
  }
  let current: Slice = packed(x).layout;
  let factor: Slice | undefined = z && packed(z).layout;
  if (!marks.includes(true)) {
    lengths.push(1);
    marks.push(true);
  }
  for (let at = marks.lastIndexOf(true); at >= 0; at = marks.lastIndexOf(true)) {
    const n = lengths[at]!;
    const outer = sizeOf(lengths.slice(0, at));
    const inner = sizeOf(lengths.slice(at + 1));
    marks[at] = false;
    lengths[at] = 1;
    const isLast = !marks.includes(true);
    current = sumMiddle(device, dtype, current, factor, { outer, n, inner }, isLast ? scale : 1);
    factor = undefined;
  }
  return new Tensor({ ...current, strides: stridesOf(shape) }, shape);
}

/**
 * The gradient of an operand of `shape` that was stretched to the shape of `grad`: grad, or grad·z, summed over the
 * axes along which it was stretched.
 */
export function sumTo(grad: Tensor, shape: Shape, z?: Tensor): Tensor {
  const shift = grad.rank - shape.length;
  const reduced = new Array<boolean>(grad.rank).fill(true);
  let any = z !== undefined || shift > 0;
  for (let axis = shift; axis < grad.rank; axis++) {
    reduced[axis] = shape[axis - shift] !== grad.shape[axis];
    if (reduced[axis]) any = true;
  }
  return any ? sumOver(grad, reduced, shape, 1, z) : grad;
}
