import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** buffers: x, y, places. ints end with n, inner, outer. */
function forward(n: number, inner: number, outer: number, buffers: readonly TypedArray[]): void {
  const [x, y, places] = buffers as [TypedArray, TypedArray, TypedArray];
  for (let o = 0; o < outer; o++) {
    for (let c = 0; c < inner; c++) {
      let place = 0;
      for (let i = 1; i < n; i++) {
        const before = x[(o * n + place) * inner + c]!;
        const next = x[(o * n + i) * inner + c]!;
        if (next > before || (Number.isNaN(next) && !Number.isNaN(before))) place = i;
      }
      places[o * inner + c] = place;
      y[o * inner + c] = x[(o * n + place) * inner + c]!;
    }
  }
}

/** ints: n, outer. */
export const rowsHost: HostKernel = (buffers, ints) => forward(ints[0]!, 1, ints[1]!, buffers);

/** ints: n, inner, tiles, outer. */
export const columnsHost: HostKernel = (buffers, ints) => forward(ints[0]!, ints[1]!, ints[3]!, buffers);

/** buffers: places, dy, dx. ints: n, inner, outer. */
export const backwardHost: HostKernel = (buffers, ints) => {
  const [places, dy, dx] = buffers as [TypedArray, TypedArray, TypedArray];
  const [n, inner, outer] = ints as [number, number, number];
  dx.fill(0, 0, outer * n * inner);
  for (let o = 0; o < outer; o++) {
    for (let c = 0; c < inner; c++) {
      dx[(o * n + places[o * inner + c]!) * inner + c] = dy[o * inner + c]!;
    }
  }
};
