import { accumulate, copyInto } from "../../autograd/move.ts";
import { empty, full, Tensor } from "../../autograd/tensor.ts";
import type { Decay, Packed } from "./problem.ts";

/** Axes of the gate g under each decay. */
export function gateAxes(decay: Decay): "HV" | "B T HV" | "B T HV K" {
  if (decay === "head") return "HV";
  return decay === "key" ? "B T HV K" : "B T HV";
}

/** The lengths of packed sequences as kernels take them. */
export function packedOf(cuSeqlens: Tensor | undefined): Packed | undefined {
  return cuSeqlens && { cuSeqlens: cuSeqlens.layout, count: cuSeqlens.size - 1 };
}

/**
 * The gradient `[HV]` of a decay fixed per head from gradients per token `[B, T, HV]`, added up in halves so that the
 * rounding grows with log T.
 */
export function sumGate(perToken: Tensor): Tensor {
  const heads = perToken.shape[2]!;
  let rows = perToken.shape[0]! * perToken.shape[1]!;
  const { device, dtype } = perToken;
  if (rows === 0) return full(device, [heads], 0, { dtype });
  const sums = empty(device, [rows, heads], { dtype });
  copyInto(sums, new Tensor({ ...perToken.layout, strides: [heads, 1] }, [rows, heads]));
  const part = (from: number, count: number): Tensor =>
    new Tensor({ storage: sums.layout.storage, offset: from * heads, strides: [heads, 1] }, [count, heads]);
  while (rows > 1) {
    const half = Math.ceil(rows / 2);
    accumulate(part(0, rows - half), part(half, rows - half));
    rows = half;
  }
  return new Tensor({ storage: sums.layout.storage, offset: 0, strides: [1] }, [heads]);
}
