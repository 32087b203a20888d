import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { activationRows } from "../activation/rows.ts";

const { value, slope } = activationRows.silu;

/** y = silu(gate)·up. */
export const forwardHost: HostKernel = (buffers, [n]) => {
  const [gate, up, y] = buffers as [TypedArray, TypedArray, TypedArray];
  for (let i = 0; i < n!; i++) y[i] = value(gate[i]!) * up[i]!;
};

/** dGate = dy·up·silu′(gate), dUp = dy·silu(gate). */
export const backwardHost: HostKernel = (buffers, [n]) => {
  const [gate, up, dy, dGate, dUp] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray, TypedArray];
  for (let i = 0; i < n!; i++) {
    const silu = value(gate[i]!);
    dGate[i] = dy[i]! * up[i]! * slope(gate[i]!, silu);
    dUp[i] = dy[i]! * silu;
  }
};
