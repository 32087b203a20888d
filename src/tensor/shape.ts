import { ShapeError } from "../errors.ts";

/** Sizes of a tensor's axes, outermost first; the empty shape is a scalar. */
export type Shape = readonly number[];

/** Number of elements: the product of the axes, 1 for a scalar. */
export function sizeOf(shape: Shape): number {
  let size = 1;
  for (let axis = 0; axis < shape.length; axis++) size *= shape[axis]!;
  return size;
}

/** Whether two shapes have the same axes in the same order. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a.length !== b.length) return false;
  for (let axis = 0; axis < a.length; axis++) if (a[axis] !== b[axis]) return false;
  return true;
}

/** A shape as errors print it: `[2, 64]`, or `[B=2, T=64]` where names are given. */
export function formatShape(shape: Shape, names?: readonly string[]): string {
  return `[${shape.map((size, axis) => (names?.[axis] ? `${names[axis]}=${size}` : `${size}`)).join(", ")}]`;
}

/**
 * The shape itself, once every axis is a whole number >= 0 and the number of elements can be counted exactly.
 *
 * Throws ShapeError naming the axis that is not.
 */
export function checkShape(who: string, shape: Shape): Shape {
  for (let axis = 0; axis < shape.length; axis++) {
    if (!Number.isSafeInteger(shape[axis]) || shape[axis]! < 0) {
      throw new ShapeError(
        `[${who}] axis ${axis} of a shape is no size: expected a whole number >= 0, got ${formatShape(shape)}`,
      );
    }
  }
  if (!Number.isSafeInteger(sizeOf(shape))) {
    throw new ShapeError(
      `[${who}] a shape has too many elements: expected fewer than 2^53, got ${formatShape(shape)}`,
    );
  }
  return shape;
}

/** Elements between neighbours along each axis of a dense row-major tensor. */
export function stridesOf(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride;
    stride *= shape[axis]!;
  }
  return strides;
}

/** The common shape of two shapes aligned at their last axes, where 1 or a missing axis stretches, if there is one. */
export function tryBroadcast(a: Shape, b: Shape): number[] | undefined {
  const rank = Math.max(a.length, b.length);
  const shape = new Array<number>(rank);
  for (let back = 1; back <= rank; back++) {
    const left = a[a.length - back] ?? 1;
    const right = b[b.length - back] ?? 1;
    if (left !== right && left !== 1 && right !== 1) return undefined;
    shape[rank - back] = left === 1 ? right : left;
  }
  return shape;
}

/** The common shape of two operands that broadcast; throws ShapeError with both shapes where they do not. */
export function broadcastShapes(who: string, a: Shape, b: Shape): number[] {
  const shape = tryBroadcast(a, b);
  if (shape === undefined) {
    throw new ShapeError(
      `[${who}] operands do not broadcast: expected equal sizes or 1 from the last axis on, got ${formatShape(a)} and ${formatShape(b)}`,
    );
  }
  return shape;
}

/**
 * Strides with which a dense tensor of `shape` is read as if it had the broadcast shape `target`: 0 where it stretches.
 */
export function broadcastStrides(shape: Shape, target: Shape): number[] {
  const strides = new Array<number>(target.length).fill(0);
  const shift = target.length - shape.length;
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (shape[axis] !== 1) strides[axis + shift] = stride;
    stride *= shape[axis]!;
  }
  return strides;
}

/**
 * An axis counted from the front; negative ones count from the end.
 *
 * Throws ShapeError where the tensor has no such axis.
 */
export function normalizeAxis(axis: number, rank: number, who: string): number {
  const normalized = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(normalized) || normalized < 0 || normalized >= rank) {
    const range =
      rank === 0 ? "no axis, for a scalar has none" : `a whole number from ${-rank} to ${rank - 1}`;
    throw new ShapeError(`[${who}] axis does not exist: expected ${range}, got ${axis}`);
  }
  return normalized;
}
