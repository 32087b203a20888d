import { copyInto } from "./move.ts";
import { empty, type Layout, type Tensor } from "./tensor.ts";

/** A tensor read as rows: `[..., inner]` where the rows lie a fixed number of elements apart. */
export interface RowView {
  readonly slice: Layout;
  /** Elements from one row to the next. */
  readonly stride: number;
}

/**
 * The tensor as rows of its last `innerAxes` axes, which must lie without gaps; copied only where the layout does not
 * allow it. A part of a fused projection `[B, T, 3·D]` needs no copy: its rows are wider than they are long.
 */
export function rowsOf(x: Tensor, innerAxes = 1): RowView {
  const outer = x.rank - innerAxes;
  const { strides } = x.layout;
  let step = 1;
  let fits = true;
  for (let axis = x.rank - 1; axis >= outer; axis--) {
    if (x.shape[axis] !== 1 && strides[axis] !== step) fits = false;
    step *= x.shape[axis]!;
  }
  let stride = -1;
  let next = 0;
  for (let axis = outer - 1; axis >= 0; axis--) {
    if (x.shape[axis] === 1) continue;
    if (stride === -1) stride = strides[axis]!;
    else if (strides[axis] !== next) fits = false;
    next = strides[axis]! * x.shape[axis]!;
  }
  if (stride === -1) stride = step;
  if (fits && stride >= step) return { slice: x.layout, stride };
  const copy = empty(x.device, x.shape, { dtype: x.dtype });
  copyInto(copy, x);
  return { slice: copy.layout, stride: step };
}
