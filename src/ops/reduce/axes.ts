/** Which axes are reduced, and what is left of the shape. */
import { Tensor } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { normalizeAxis, type Shape, stridesOf } from "../../tensor/shape.ts";

/** Options of `sum`, `mean` and `max`. */
export interface ReduceOptions {
  /** One axis or several, counted from the end where negative; all unless given. */
  readonly axes?: number | readonly number[];
  /** Leave reduced axes in the shape with length 1. */
  readonly keepDims?: boolean;
}

/** True for each axis that is reduced; ShapeError for one that is not there or is named twice. */
export function reducedAxes(who: string, rank: number, axes: ReduceOptions["axes"]): boolean[] {
  const reduced = new Array<boolean>(rank).fill(axes === undefined);
  if (axes === undefined) return reduced;
  if (typeof axes !== "number" && !Array.isArray(axes)) {
    throw new ShapeError(`[${who}] axes are numbers: expected one or a list of them, got ${axes}`);
  }
  for (const axis of typeof axes === "number" ? [axes] : axes) {
    const at = normalizeAxis(axis, rank, who);
    if (reduced[at]) {
      throw new ShapeError(`[${who}] axes name one axis twice: expected different ones, got ${axes}`);
    }
    reduced[at] = true;
  }
  return reduced;
}

/** The shape after reducing. */
export function reducedShape(shape: Shape, reduced: readonly boolean[], keepDims: boolean): number[] {
  const result: number[] = [];
  for (let axis = 0; axis < shape.length; axis++) {
    if (!reduced[axis]) result.push(shape[axis]!);
    else if (keepDims) result.push(1);
  }
  return result;
}

/** What is left after reducing `shape`, read as if it still had that shape: reduced axes have a step of 0. */
export function stretched(y: Tensor, shape: Shape, reduced: readonly boolean[]): Tensor {
  const strides = new Array<number>(shape.length).fill(0);
  const keepsDims = y.rank === shape.length;
  let from = 0;
  for (let axis = 0; axis < shape.length; axis++) {
    if (!reduced[axis]) strides[axis] = y.layout.strides[keepsDims ? axis : from++]!;
  }
  return new Tensor({ storage: y.layout.storage, offset: y.layout.offset, strides }, shape);
}

/** Axes that are kept first, then those that are reduced: a view. */
export function reducedLast(x: Tensor, reduced: readonly boolean[]): Tensor {
  const order = [...reduced.keys()].sort((a, b) => Number(reduced[a]) - Number(reduced[b]) || a - b);
  const { storage, offset, strides } = x.layout;
  return new Tensor(
    { storage, offset, strides: order.map((axis) => strides[axis]!) },
    order.map((axis) => x.shape[axis]!),
  );
}

/** A dense tensor of the shape that `reducedLast` gives, its axes put back where they came from: a view. */
export function axesBack(y: Tensor, shape: Shape, reduced: readonly boolean[]): Tensor {
  const order = [...reduced.keys()].sort((a, b) => Number(reduced[a]) - Number(reduced[b]) || a - b);
  const dense = stridesOf(order.map((axis) => shape[axis]!));
  const strides = new Array<number>(shape.length);
  for (const [at, axis] of order.entries()) strides[axis] = dense[at]!;
  return new Tensor({ ...y.layout, strides }, shape);
}
