/** Gradients of weights that all rows share: summed by blocks of rows, then over the blocks. */
import { full, Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { sizeOf, stridesOf } from "../../tensor/shape.ts";
import { sumMiddle } from "../reduce/sum-kernels.ts";

/** How rows are cut for the gradient by weights: by their sizes alone. */
export interface Blocks {
  /** Rows of one block. */
  readonly length: number;
  readonly units: number;
}

/** Blocks of at least 16 rows and about 16,384 elements, so that writing their sums costs little. */
export function blocksOf(rows: number, width: number, mode: number): Blocks {
  if (rows === 0) return { length: 1, units: 0 };
  const length = mode === 0 ? 16 : Math.max(16, Math.ceil(16384 / width));
  return { length, units: Math.ceil(rows / length) };
}

/** Sums partial gradients [units, ...shape] over the blocks. */
export function weightGradient(partial: Tensor, units: number, shape: readonly number[]): Tensor {
  const { device, dtype } = partial;
  const inner = sizeOf(shape);
  if (units === 0 || inner === 0) return full(device, shape, 0, { dtype });
  const strides = stridesOf(shape);
  if (units === 1) return new Tensor({ ...partial.layout, strides }, shape);
  const total = sumMiddle(device, dtype, partial.layout, undefined, { outer: 1, n: units, inner }, 1);
  device.release(partial.layout.storage);
  return new Tensor({ ...total, strides }, shape);
}

/** Throws a ConfigError where eps is no small positive number. */
export function checkEps(who: string, eps: number): void {
  if (eps > 0 && Number.isFinite(eps)) return;
  throw new ConfigError(`[${who}] eps keeps the root from zero: expected a number > 0, got ${eps}`);
}
