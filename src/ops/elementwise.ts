import type { Kernel, Slice } from "../device/device.ts";
import { checkTensor, DtypeError } from "../errors.ts";
import type { Tensor } from "./op.ts";

/**
 * Runs a kernel that treats every element alike: operands of one size without gaps, one unit per 4,096 elements.
 *
 * `cost` is the work of an element in multiply-adds.
 */
export function runElementwise(
  kernel: Kernel,
  buffers: readonly [Slice, ...Slice[]],
  size: number,
  cost: number,
  floats: readonly number[] = none,
): void {
  if (size === 0) return;
  buffers[0].storage.device.run({
    kernel,
    buffers,
    ints: [size],
    floats,
    units: (size + 4095) >>> 12,
    work: size * cost,
    scratchBytes: 0,
  });
}

const none: readonly number[] = [];

/** Throws a DtypeError where an operand does not hold floats. */
export function checkFloats(who: string, name: string, x: Tensor): void {
  checkTensor(who, name, x);
  const { dtype } = x;
  if (dtype === "float32" || dtype === "float64") return;
  throw new DtypeError(
    `[${who}] ${name} has a dtype without fractions: expected float32 or float64, got ${dtype}`,
  );
}
