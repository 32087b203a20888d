/** How two operands of different shapes are read side by side. */
import type { Tensor } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import type { Shape } from "../../tensor/shape.ts";

/** Axes that cannot be joined, at most. */
export const maximumRank = 6;

/**
 * Lengths of a shape, and both operands' strides under it, with neighbouring axes joined wherever both operands allow
 * it, padded in front to six axes: 18 numbers. An operand's step is 0 along axes that it stretches to.
 */
export function sideBySide(who: string, shape: Shape, a: Tensor, b: Tensor): number[] {
  const result = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
  let at = maximumRank;
  for (let back = 1; back <= shape.length; back++) {
    const length = shape[shape.length - back]!;
    if (length === 1) continue;
    const aStep = stepOf(a, back);
    const bStep = stepOf(b, back);
    if (at < maximumRank) {
      const inner = result[at]!;
      const joins =
        aStep === inner * result[maximumRank + at]! && bStep === inner * result[2 * maximumRank + at]!;
      if (joins) {
        result[at] = inner * length;
        continue;
      }
    }
    if (at-- === 0) {
      throw new ShapeError(
        `[${who}] operands have too many axes that cannot be joined: expected at most ${maximumRank}, got more in ${shape.length}`,
      );
    }
    result[at] = length;
    result[maximumRank + at] = aStep;
    result[2 * maximumRank + at] = bStep;
  }
  return result;
}

/** Elements between neighbours of an operand along the axis `back` from the end of the common shape. */
function stepOf(x: Tensor, back: number): number {
  const axis = x.rank - back;
  return axis < 0 || x.shape[axis] === 1 ? 0 : x.layout.strides[axis]!;
}
