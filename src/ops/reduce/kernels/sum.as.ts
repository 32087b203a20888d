import { loadLanes, storeLanes, sumLanes } from "../../../device/wasm/kernels/lanes.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Sums of x, or of x·z, over the middle axis of [outer, n, inner]. The axis is cut into blocks of a fixed length; each
// block of each outer index is summed by itself, y [outer, blocks, inner], and a second pass sums the blocks.

/** Four lanes of x, or of x·z. */
// @ts-ignore: decorator
@inline function term(x: usize, z: usize, at: usize, product: bool): v128 {
  if (product) return f32x4.mul(v128.load(x + at), v128.load(z + at));
  return v128.load(x + at);
}

/** sum + the term at `at`. */
// @ts-ignore: decorator
@inline function plus(sum: v128, x: usize, z: usize, at: usize, product: bool): v128 {
  if (product) return fma(v128.load(x + at), v128.load(z + at), sum);
  return f32x4.add(sum, v128.load(x + at));
}

// @ts-ignore: decorator
@inline function sumRun(x: usize, z: usize, n: i32, product: bool): f32 {
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (; n >= 16; n -= 16) {
    a = plus(a, x, z, 0, product);
    b = plus(b, x, z, 16, product);
    c = plus(c, x, z, 32, product);
    d = plus(d, x, z, 48, product);
    x += 64;
    z += 64;
  }
  for (; n >= 4; n -= 4) {
    a = plus(a, x, z, 0, product);
    x += 16;
    z += 16;
  }
  if (n > 0) {
    const rest = loadLanes(x, n);
    b = f32x4.add(b, product ? f32x4.mul(rest, loadLanes(z, n)) : rest);
  }
  return sumLanes(f32x4.add(f32x4.add(a, c), f32x4.add(b, d)));
}

// args: x, z, y; n, block, blocks, rows; scale. Inner axis of 1. One unit is one block of one row.
// @ts-ignore: decorator
@inline function rows(args: usize, begin: i32, end: i32, product: bool): void {
  const x = pointerAt(args, 0), z = pointerAt(args, 1), y = pointerAt(args, 2);
  const n = intAt(args, 3), block = intAt(args, 4), blocks = intAt(args, 5);
  const scale = floatAt(args, 7);
  for (let unit = begin; unit < end; unit++) {
    const row = unit / blocks, from = (unit - row * blocks) * block;
    const at = ((<usize>row) * (<usize>n) + <usize>from) << 2;
    store<f32>(y + ((<usize>unit) << 2), scale * sumRun(x + at, z + at, min(block, n - from), product));
  }
}

export function sum_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  rows(args, begin, end, false);
}

export function sum_rowsProduct_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  rows(args, begin, end, true);
}

/** y = or += four rows of x, column by column, each an ascending chain. */
// @ts-ignore: decorator
@inline function fourRows(x: usize, z: usize, y: usize, stride: usize, columns: i32, first: bool, product: bool): void {
  const stride2 = stride + stride, stride3 = stride2 + stride;
  for (; columns >= 4; columns -= 4) {
    let sum = first ? term(x, z, 0, product) : plus(v128.load(y), x, z, 0, product);
    sum = plus(sum, x, z, stride, product);
    sum = plus(sum, x, z, stride2, product);
    sum = plus(sum, x, z, stride3, product);
    v128.store(y, sum);
    x += 16;
    z += 16;
    y += 16;
  }
  if (columns > 0) {
    for (let at: usize = 0; at <= stride3; at += stride) {
      oneVector(x + at, z + at, y, columns, first && at == 0, product);
    }
  }
}

// @ts-ignore: decorator
@inline function oneVector(x: usize, z: usize, y: usize, count: i32, first: bool, product: bool): void {
  const row = loadLanes(x, count);
  const before = first ? f32x4.splat(0) : loadLanes(y, count);
  storeLanes(y, product ? fma(row, loadLanes(z, count), before) : f32x4.add(before, row), count);
}

/** y = or += one row. */
// @ts-ignore: decorator
@inline function oneRow(x: usize, z: usize, y: usize, columns: i32, first: bool, product: bool): void {
  for (; columns >= 4; columns -= 4) {
    v128.store(y, first ? term(x, z, 0, product) : plus(v128.load(y), x, z, 0, product));
    x += 16;
    z += 16;
    y += 16;
  }
  if (columns > 0) oneVector(x, z, y, columns, first, product);
}

function scaleRun(y: usize, count: i32, scale: f32): void {
  const wide = f32x4.splat(scale);
  for (; count >= 4; count -= 4) {
    v128.store(y, f32x4.mul(v128.load(y), wide));
    y += 16;
  }
  if (count > 0) storeLanes(y, f32x4.mul(loadLanes(y, count), wide), count);
}

// args: x, z, y; n, inner, block, blocks, tiles, outer; scale. One unit is 1,024 columns of one block of one outer index.
// @ts-ignore: decorator
@inline function columns(args: usize, begin: i32, end: i32, product: bool): void {
  const n = intAt(args, 3), inner = intAt(args, 4), block = intAt(args, 5), blocks = intAt(args, 6), tiles = intAt(args, 7);
  const scale = floatAt(args, 9);
  const stride = (<usize>inner) << 2;
  for (let unit = begin; unit < end; unit++) {
    const piece = unit / tiles, tile = unit - piece * tiles;
    const outer = piece / blocks, from = (piece - outer * blocks) * block;
    const skip = ((<usize>outer * <usize>n + <usize>from) * <usize>inner + ((<usize>tile) << 10)) << 2;
    let x = pointerAt(args, 0) + skip, z = pointerAt(args, 1) + skip;
    const y = pointerAt(args, 2) + (((<usize>piece) * <usize>inner + ((<usize>tile) << 10)) << 2);
    const count = min(1024, inner - (tile << 10));
    let left = min(block, n - from);
    let first = true;
    for (; left >= 4; left -= 4) {
      if (first) fourRows(x, z, y, stride, count, true, product);
      else fourRows(x, z, y, stride, count, false, product);
      first = false;
      x += stride << 2;
      z += stride << 2;
    }
    for (; left > 0; left--) {
      if (first) oneRow(x, z, y, count, true, product);
      else oneRow(x, z, y, count, false, product);
      first = false;
      x += stride;
      z += stride;
    }
    if (scale != 1) scaleRun(y, count, scale);
  }
}

export function sum_columns_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  columns(args, begin, end, false);
}

export function sum_columnsProduct_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  columns(args, begin, end, true);
}
