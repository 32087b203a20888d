import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Largest element of a row, and Σ exp(x − largest). */
function partition(x: TypedArray, from: number, n: number): readonly [largest: number, total: number] {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < n; i++) largest = Math.max(largest, x[from + i]!);
  let total = 0;
  for (let i = 0; i < n; i++) total += Math.exp(x[from + i]! - largest);
  return [largest, total];
}

/** buffers: x, y. ints: n, stride, rows. */
function forward(value: (difference: number, total: number) => number): HostKernel {
  return (buffers, ints) => {
    const [x, y] = buffers as [TypedArray, TypedArray];
    const [n, stride, rows] = ints as [number, number, number];
    for (let row = 0; row < rows; row++) {
      const [largest, total] = partition(x, row * stride, n);
      for (let i = 0; i < n; i++) y[row * n + i] = value(x[row * stride + i]! - largest, total);
    }
  };
}

/** buffers: y, dy, dx. ints: n, rows. */
function backward(isLog: boolean): HostKernel {
  return (buffers, ints) => {
    const [y, dy, dx] = buffers as [TypedArray, TypedArray, TypedArray];
    const [n, rows] = ints as [number, number];
    for (let row = 0; row < rows; row++) {
      const from = row * n;
      let sum = 0;
      for (let i = from; i < from + n; i++) sum += isLog ? dy[i]! : y[i]! * dy[i]!;
      for (let i = from; i < from + n; i++) {
        dx[i] = isLog ? dy[i]! - Math.exp(y[i]!) * sum : y[i]! * (dy[i]! - sum);
      }
    }
  };
}

/** Plain loops of softmax and of its logarithm. */
export const softmaxHost = {
  forward: forward((difference, total) => Math.exp(difference) / total),
  backward: backward(false),
};

/** The same for log-softmax. */
export const logSoftmaxHost = {
  forward: forward((difference, total) => difference - Math.log(total)),
  backward: backward(true),
};
