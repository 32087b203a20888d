import { loadLanes, storeLanes } from "../../../device/wasm/kernels/lanes.as";
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Running sums along the middle axis of [outer, n, inner], one chain an element, first to last or last to first.

/** One row, element after element. */
function scanRow(x: usize, y: usize, n: i32, step: usize): void {
  let sum: f32 = 0;
  for (; n > 0; n--) {
    sum += load<f32>(x);
    store<f32>(y, sum);
    x += step;
    y += step;
  }
}

/** Four rows side by side: their chains do not wait for each other. */
function scanFour(x: usize, y: usize, n: i32, step: usize, row: usize): void {
  let a: f32 = 0, b: f32 = 0, c: f32 = 0, d: f32 = 0;
  const row2 = row + row, row3 = row2 + row;
  for (; n > 0; n--) {
    a += load<f32>(x);
    b += load<f32>(x + row);
    c += load<f32>(x + row2);
    d += load<f32>(x + row3);
    store<f32>(y, a);
    store<f32>(y + row, b);
    store<f32>(y + row2, c);
    store<f32>(y + row3, d);
    x += step;
    y += step;
  }
}

// args: x, y; n, rows, reverse. Inner axis of 1. One unit is four rows.
export function cumsum_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2), rows = intAt(args, 3), reverse = intAt(args, 4) != 0;
  const rowBytes = (<usize>n) << 2;
  const step: usize = reverse ? <usize>-4 : 4;
  const from: usize = reverse ? rowBytes - 4 : 0;
  for (let unit = begin; unit < end; unit++) {
    const first = unit << 2;
    const at = (<usize>first) * rowBytes + from;
    const x = pointerAt(args, 0) + at, y = pointerAt(args, 1) + at;
    const count = min(4, rows - first);
    if (count == 4) scanFour(x, y, n, step, rowBytes);
    else for (let i = 0; i < count; i++) scanRow(x + (<usize>i) * rowBytes, y + (<usize>i) * rowBytes, n, step);
  }
}

// args: x, y; n, inner, tiles, reverse. One unit is 256 columns of one outer index; `tiles` of them make all.
export function cumsum_columns_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2), inner = intAt(args, 3), tiles = intAt(args, 4), reverse = intAt(args, 5) != 0;
  const rowBytes = (<usize>inner) << 2;
  const step: usize = reverse ? 0 - rowBytes : rowBytes;
  for (let unit = begin; unit < end; unit++) {
    const outer = unit / tiles, column = (unit - outer * tiles) << 8;
    const first = (<usize>outer) * (<usize>n) + (reverse ? <usize>(n - 1) : 0);
    const at = first * rowBytes + ((<usize>column) << 2);
    let x = pointerAt(args, 0) + at, y = pointerAt(args, 1) + at;
    const count = min(256, inner - column);
    memory.copy(y, x, (<usize>count) << 2);
    for (let i = 1; i < n; i++) {
      addRow(x + step, y, y + step, count);
      x += step;
      y += step;
    }
  }
}

/** y = x + before, element by element. */
// @ts-ignore: decorator
@inline function addRow(x: usize, before: usize, y: usize, count: i32): void {
  for (; count >= 8; count -= 8) {
    v128.store(y, f32x4.add(v128.load(before), v128.load(x)));
    v128.store(y, f32x4.add(v128.load(before, 16), v128.load(x, 16)), 16);
    x += 32;
    before += 32;
    y += 32;
  }
  for (; count >= 4; count -= 4) {
    v128.store(y, f32x4.add(v128.load(before), v128.load(x)));
    x += 16;
    before += 16;
    y += 16;
  }
  if (count > 0) storeLanes(y, f32x4.add(loadLanes(before, count), loadLanes(x, count)), count);
}
