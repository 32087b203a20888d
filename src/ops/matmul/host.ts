import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Outputs in one panel of packed weights, on every device. */
export const panelWidth = 16;

/** buffers: a, b, c, bias. ints: sizes, batch strides, row and column strides, accumulate, bias given, plan. */
export const stridedHost: HostKernel = (buffers, ints) => {
  const [a, b, c, bias] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray];
  const [m, n, k, batch, inner] = ints as [number, number, number, number, number];
  const [aOuter, aInner, aRow, aStep] = ints.slice(5) as [number, number, number, number];
  const [bOuter, bInner, bStep, bCol] = ints.slice(9) as [number, number, number, number];
  const [cOuter, cInner, cRow, accumulate, hasBias] = ints.slice(13) as [
    number,
    number,
    number,
    number,
    number,
  ];
  for (let entry = 0; entry < batch; entry++) {
    const outer = Math.floor(entry / inner);
    const local = entry % inner;
    const aAt = outer * aOuter + local * aInner;
    const bAt = outer * bOuter + local * bInner;
    const cAt = outer * cOuter + local * cInner;
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        const at = cAt + i * cRow + j;
        let sum = (accumulate ? c[at]! : 0) + (hasBias ? bias[j]! : 0);
        for (let p = 0; p < k; p++) sum += a[aAt + i * aRow + p * aStep]! * b[bAt + p * bStep + j * bCol]!;
        c[at] = sum;
      }
    }
  }
};

/** buffers: w, packed. ints: out, in, row stride and column stride of w. */
export const packHost: HostKernel = (buffers, ints) => {
  const [w, packed] = buffers as [TypedArray, TypedArray];
  const [out, width, row, col] = ints as [number, number, number, number];
  const panels = Math.ceil(out / panelWidth);
  for (let q = 0; q < panels; q++) {
    for (let p = 0; p < width; p++) {
      for (let j = 0; j < panelWidth; j++) {
        const o = q * panelWidth + j;
        packed[(q * width + p) * panelWidth + j] = o < out ? w[o * row + p * col]! : 0;
      }
    }
  }
};

/** buffers: x, packed, y, bias. ints: rows, out, in, row strides of x and y, accumulate, bias given, plan. */
export const packedHost: HostKernel = (buffers, ints) => {
  const [x, packed, y, bias] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray];
  const [m, out, width, xRow, yRow] = ints as [number, number, number, number, number];
  const [accumulate, hasBias] = ints.slice(5) as [number, number];
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < out; j++) {
      const at = i * yRow + j;
      const panel = Math.floor(j / panelWidth) * width;
      let sum = (accumulate ? y[at]! : 0) + (hasBias ? bias[j]! : 0);
      for (let p = 0; p < width; p++)
        sum += x[i * xRow + p]! * packed[(panel + p) * panelWidth + (j % panelWidth)]!;
      y[at] = sum;
    }
  }
};
