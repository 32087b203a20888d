import { loadLanes, storeLanes } from "../../../device/wasm/kernels/lanes.as";
import { dotRun, scaleRun, sumRun } from "../../../device/wasm/kernels/rows.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Sums of x, or of x·z, over the middle axis of [outer, n, inner]. The axis is cut into blocks of a fixed length; each
// block of each outer index is summed by itself, y [outer, blocks, inner], and a second pass sums the blocks.

/** Four lanes of x, or of x·z. */
// @ts-ignore: decorator
@inline function term(x: usize, z: usize, product: bool): v128 {
  if (product) return f32x4.mul(v128.load(x), v128.load(z));
  return v128.load(x);
}

/** sum + the term. */
// @ts-ignore: decorator
@inline function plus(sum: v128, x: usize, z: usize, product: bool): v128 {
  if (product) return fma(v128.load(x), v128.load(z), sum);
  return f32x4.add(sum, v128.load(x));
}

/** The same 16 bytes further on. */
// @ts-ignore: decorator
@inline function plusNext(sum: v128, x: usize, z: usize, product: bool): v128 {
  if (product) return fma(v128.load(x, 16), v128.load(z, 16), sum);
  return f32x4.add(sum, v128.load(x, 16));
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
    const count = min(block, n - from);
    store<f32>(y + ((<usize>unit) << 2), scale * (product ? dotRun(x + at, z + at, count) : sumRun(x + at, count)));
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
  let x1 = x + stride, x2 = x1 + stride, x3 = x2 + stride;
  let z1 = z + stride, z2 = z1 + stride, z3 = z2 + stride;
  for (; columns >= 8; columns -= 8) {
    let a = first ? term(x, z, product) : plus(v128.load(y), x, z, product);
    let b = first ? term(x + 16, z + 16, product) : plusNext(v128.load(y, 16), x, z, product);
    a = plus(a, x1, z1, product); b = plusNext(b, x1, z1, product);
    a = plus(a, x2, z2, product); b = plusNext(b, x2, z2, product);
    a = plus(a, x3, z3, product); b = plusNext(b, x3, z3, product);
    v128.store(y, a);
    v128.store(y, b, 16);
    x += 32; x1 += 32; x2 += 32; x3 += 32; y += 32;
    if (product) { z += 32; z1 += 32; z2 += 32; z3 += 32; }
  }
  for (; columns > 0; columns -= 4) {
    const count = min(4, columns);
    oneVector(x, z, y, count, first, product);
    oneVector(x1, z1, y, count, false, product);
    oneVector(x2, z2, y, count, false, product);
    oneVector(x3, z3, y, count, false, product);
    x += 16; x1 += 16; x2 += 16; x3 += 16; y += 16;
    z += 16; z1 += 16; z2 += 16; z3 += 16;
  }
}

/** y = or += one to four columns of one row. */
function oneVector(x: usize, z: usize, y: usize, count: i32, first: bool, product: bool): void {
  if (count == 4) {
    v128.store(y, first ? term(x, z, product) : plus(v128.load(y), x, z, product));
    return;
  }
  let row = loadLanes(x, count);
  if (product) row = first ? f32x4.mul(row, loadLanes(z, count)) : fma(row, loadLanes(z, count), loadLanes(y, count));
  else if (!first) row = f32x4.add(loadLanes(y, count), row);
  storeLanes(y, row, count);
}

/** y = or += one row. */
function oneRow(x: usize, z: usize, y: usize, columns: i32, first: bool, product: bool): void {
  for (; columns > 0; columns -= 4) {
    oneVector(x, z, y, min(4, columns), first, product);
    x += 16;
    z += 16;
    y += 16;
  }
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
      oneRow(x, z, y, count, first, product);
      first = false;
      x += stride;
      z += stride;
    }
    if (scale != 1) scaleRun(y, y, count, scale);
  }
}

export function sum_columns_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  columns(args, begin, end, false);
}

export function sum_columnsProduct_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  columns(args, begin, end, true);
}
