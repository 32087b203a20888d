import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Loss, log-sum-exp and weight of every row. */
export const rowsHost: HostKernel = (buffers, ints, [smoothing]) => {
  const [x, targets, labels, losses, logSums, weights] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const [n, vocabulary, stride, ignored, labelled] = ints as [number, number, number, number, number];
  for (let row = 0; row < n; row++) {
    const target = targets[row]!;
    losses[row] = logSums[row] = weights[row] = 0;
    if (target === ignored) continue;
    const logits = x.subarray(row * stride, row * stride + vocabulary);
    let top = Number.NEGATIVE_INFINITY;
    for (const value of logits) top = Math.max(top, value);
    let total = 0;
    let plain = 0;
    for (const value of logits) {
      total += Math.exp(value - top);
      plain += value;
    }
    const logSum = top + Math.log(total);
    const weight = labelled ? labels[target]! : 1;
    const loss = (1 - smoothing!) * (logSum - logits[target]!) + smoothing! * (logSum - plain / vocabulary);
    losses[row] = weight * loss;
    logSums[row] = logSum;
    weights[row] = weight;
  }
};

/** The loss and what it was divided by. */
export const sumHost: HostKernel = (buffers, [n, isMean]) => {
  const [losses, weights, result] = buffers as [TypedArray, TypedArray, TypedArray];
  let loss = 0;
  let weight = 0;
  for (let i = 0; i < n!; i++) {
    loss += losses[i]!;
    weight += weights[i]!;
  }
  const divisor = isMean ? weight : 1;
  result[0] = divisor === 0 ? 0 : loss / divisor;
  result[1] = divisor;
};

/** dLogits = dLoss · w / divisor · (softmax − (1 − ε) onehot − ε / vocabulary). */
export const backwardHost: HostKernel = (buffers, [n, vocabulary, stride], [smoothing]) => {
  const [x, targets, logSums, weights, result, dLoss, dx] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  for (let row = 0; row < n!; row++) {
    const isSilent = weights[row] === 0 || result[1] === 0;
    const factor = isSilent ? 0 : (dLoss[0]! * weights[row]!) / result[1]!;
    for (let i = 0; i < vocabulary!; i++) {
      const hot = targets[row] === i ? 1 - smoothing! : 0;
      const p = isSilent ? 0 : Math.exp(x[row * stride! + i]! - logSums[row]!);
      dx[row * vocabulary! + i] = isSilent ? 0 : factor * (p - hot - smoothing! / vocabulary!);
    }
  }
};
