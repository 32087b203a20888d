import { put, take } from "../../../device/wasm/kernels/lanes.as";
import { maxRun } from "../../../device/wasm/kernels/rows.as";
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Largest elements over the middle axis of [outer, n, inner], and where they stand: the first of equals, the first NaN
// where there is one.

/** Where the first element equal to `value`, or the first NaN if that is one, stands. */
function placeOf(x: usize, n: i32, value: f32): i32 {
  const wide = f32x4.splat(value);
  let i = 0;
  if (value == value) {
    for (; i + 16 <= n; i += 16) {
      const at = x + ((<usize>i) << 2);
      const a = v128.or(f32x4.eq(v128.load(at), wide), f32x4.eq(v128.load(at, 16), wide));
      const b = v128.or(f32x4.eq(v128.load(at, 32), wide), f32x4.eq(v128.load(at, 48), wide));
      if (v128.any_true(v128.or(a, b))) break;
    }
    for (; i + 4 <= n; i += 4) {
      const bits = i32x4.bitmask(f32x4.eq(v128.load(x + ((<usize>i) << 2)), wide));
      if (bits != 0) return i + ctz(bits);
    }
    while (load<f32>(x + ((<usize>i) << 2)) != value) i++;
    return i;
  }
  while (load<f32>(x + ((<usize>i) << 2)) == load<f32>(x + ((<usize>i) << 2))) i++;
  return i;
}

// args: x, y, places; n. Inner axis of 1. One unit is a row.
export function max_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3);
  for (let row = begin; row < end; row++) {
    const x = pointerAt(args, 0) + (((<usize>row) * (<usize>n)) << 2);
    const at = (<usize>row) << 2;
    const value = maxRun(x, n);
    store<f32>(pointerAt(args, 1) + at, value);
    store<i32>(pointerAt(args, 2) + at, placeOf(x, n, value));
  }
}

// @ts-ignore: decorator
@inline function contestStep(x: usize, y: usize, places: usize, row: v128, count: i32): void {
  const next = take(x, count);
  const value = take(y, count);
  const isNaN = v128.and(f32x4.ne(next, next), f32x4.eq(value, value));
  const wins = v128.or(f32x4.gt(next, value), isNaN);
  put(y, v128.bitselect(next, value, wins), count);
  put(places, v128.bitselect(row, take(places, count), wins), count);
}

/** A row of x against the largest so far. */
function contest(x: usize, y: usize, places: usize, row: i32, count: i32): void {
  const wide = i32x4.splat(row);
  for (; count >= 4; count -= 4) {
    contestStep(x, y, places, wide, 4);
    x += 16;
    y += 16;
    places += 16;
  }
  if (count > 0) contestStep(x, y, places, wide, count);
}

// args: x, y, places; n, inner, tiles. One unit is 256 columns of one outer index; `tiles` of them make all.
export function max_columns_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3), inner = intAt(args, 4), tiles = intAt(args, 5);
  const stride = (<usize>inner) << 2;
  for (let unit = begin; unit < end; unit++) {
    const outer = unit / tiles, column = (unit - outer * tiles) << 8;
    let x = pointerAt(args, 0) + ((((<usize>outer) * (<usize>n)) * (<usize>inner) + <usize>column) << 2);
    const at = ((<usize>outer) * (<usize>inner) + <usize>column) << 2;
    const y = pointerAt(args, 1) + at, places = pointerAt(args, 2) + at;
    const count = min(256, inner - column);
    memory.copy(y, x, (<usize>count) << 2);
    memory.fill(places, 0, (<usize>count) << 2);
    for (let i = 1; i < n; i++) {
      x += stride;
      contest(x, y, places, i, count);
    }
  }
}

// args: places, dy, dx; n, inner. Everything 0 but where the largest stood. One unit is one outer index.
export function max_place_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3), inner = intAt(args, 4);
  const size = (<usize>n) * (<usize>inner);
  for (let outer = begin; outer < end; outer++) {
    const dx = pointerAt(args, 2) + (((<usize>outer) * size) << 2);
    const skip = ((<usize>outer) * (<usize>inner)) << 2;
    memory.fill(dx, 0, size << 2);
    for (let column = 0; column < inner; column++) {
      const at = skip + ((<usize>column) << 2);
      const place = (<usize>load<i32>(pointerAt(args, 0) + at)) * (<usize>inner) + <usize>column;
      store<f32>(dx + (place << 2), load<f32>(pointerAt(args, 1) + at));
    }
  }
}
