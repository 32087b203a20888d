import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Bits that say which optional operands are there and what is computed. */
export const flagBits = { bias: 1, initial: 2, final: 4, packed: 8, silu: 16 } as const;

interface Job {
  readonly sequences: number;
  readonly channels: number;
  readonly width: number;
  readonly silu: boolean;
  first(n: number): number;
  /** x of channel c at a token, which may lie in the carried state or before everything. */
  token(n: number, row: number, c: number): number;
  /** The convolution before its activation. */
  sum(n: number, row: number, c: number): number;
}

function job(buffers: readonly TypedArray[], ints: readonly number[]): Job {
  const [x, weight, bias, initial, cuSeqlens] = buffers as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const [sequences, time, channels, width, stride, , flags] = ints as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const past = width - 1;
  const first = (n: number): number => (flags & flagBits.packed ? cuSeqlens[n]! : n * time);
  const token = (n: number, row: number, c: number): number => {
    const before = row - first(n);
    if (before >= 0) return x[row * stride + c]!;
    return flags & flagBits.initial ? initial[(n * past + before + past) * channels + c]! : 0;
  };
  const sum = (n: number, row: number, c: number): number => {
    let z = flags & flagBits.bias ? bias[c]! : 0;
    for (let j = 0; j < width; j++) z += weight[c * width + j]! * token(n, row - past + j, c);
    return z;
  };
  return { sequences, channels, width, silu: (flags & flagBits.silu) !== 0, first, token, sum };
}

/** y[t] = act(bias + Σ_j weight[j] x[t − W + 1 + j]), and the last W − 1 tokens. */
export const forwardHost: HostKernel = (buffers, ints) => {
  const { sequences, channels, width, silu, first, token, sum } = job(buffers, ints);
  const [y, final] = buffers.slice(5) as [TypedArray, TypedArray];
  const past = width - 1;
  for (let n = 0; n < sequences; n++) {
    for (let row = first(n); row < first(n + 1); row++) {
      for (let c = 0; c < channels; c++) {
        const z = sum(n, row, c);
        y[row * ints[5]! + c] = silu ? z / (1 + Math.exp(-z)) : z;
      }
    }
    if (!(ints[6]! & flagBits.final)) continue;
    for (let i = 0; i < past; i++) {
      for (let c = 0; c < channels; c++) {
        final[(n * past + i) * channels + c] = token(n, first(n + 1) - past + i, c);
      }
    }
  }
};

/** Gradients of x, weight, bias and the initial state. */
export const backwardHost: HostKernel = (buffers, ints) => {
  const { sequences, channels, width, silu, first, token, sum } = job(buffers, ints);
  const [dy, dFinal, dx, dWeight, dBias, dInitial] = buffers.slice(5) as TypedArray[] as [
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
    TypedArray,
  ];
  const flags = ints[6]!;
  const past = width - 1;
  dx.fill(0, 0, first(sequences) * channels);
  dWeight.fill(0, 0, channels * width);
  if (flags & flagBits.bias) dBias.fill(0, 0, channels);
  if (flags & flagBits.initial) dInitial.fill(0, 0, sequences * past * channels);
  for (let n = 0; n < sequences; n++) {
    const send = (row: number, c: number, grad: number): void => {
      const before = row - first(n);
      if (before >= 0) dx[row * channels + c]! += grad;
      else if (flags & flagBits.initial) dInitial[(n * past + before + past) * channels + c]! += grad;
    };
    for (let row = first(n); row < first(n + 1); row++) {
      for (let c = 0; c < channels; c++) {
        let dz = dy[row * ints[5]! + c]!;
        if (silu) {
          const z = sum(n, row, c);
          const s = 1 / (1 + Math.exp(-z));
          dz *= s * (1 + z * (1 - s));
        }
        if (flags & flagBits.bias) dBias[c]! += dz;
        for (let j = 0; j < width; j++) {
          dWeight[c * width + j]! += dz * token(n, row - past + j, c);
          send(row - past + j, c, dz * buffers[1]![c * width + j]!);
        }
      }
    }
    if (!(flags & flagBits.final)) continue;
    for (let i = 0; i < past; i++) {
      for (let c = 0; c < channels; c++)
        send(first(n + 1) - past + i, c, dFinal[(n * past + i) * channels + c]!);
    }
  }
};
