// Maps of every channel alone, applied to rows as a kernel reads them; and their slopes from the mapped rows. Rows in
// scratch are padded with zeros, also where the map of 0 is not 0. Strides are in bytes.
import { loadLanes, storeLanes } from "../../../device/wasm/kernels/lanes.as";
import { exp4, expFloored4, expm14 } from "../../../device/wasm/kernels/math.as";
import { softplus4 } from "../../../device/wasm/kernels/sigmoid.as";

/** Rows as they are. */
export const IDENTITY: i32 = 0;
const ELU_PLUS_ONE: i32 = 1;
const RELU: i32 = 2;
const EXP: i32 = 3;
const SOFTPLUS: i32 = 4;

// prettier-ignore
const MASKS = memory.data<u32>([
  0, 0, 0, 0, 0xffffffff, 0, 0, 0, 0xffffffff, 0xffffffff, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0,
], 16);

/** φ in each lane; x + 1 is x above 0 and exp(0) beside it. */
// @ts-ignore: decorator
@inline function value4(map: i32, x: v128): v128 {
  const zero = i32x4.splat(0);
  if (map == ELU_PLUS_ONE) return f32x4.add(f32x4.pmax(x, zero), expFloored4(f32x4.pmin(x, zero)));
  if (map == RELU) return f32x4.pmax(x, zero);
  if (map == EXP) return exp4(x);
  if (map == SOFTPLUS) return softplus4(x);
  return x;
}

/** The slope of φ in each lane, from y = φ(x). */
// @ts-ignore: decorator
@inline function slope4(map: i32, y: v128): v128 {
  const one = f32x4.splat(1);
  if (map == ELU_PLUS_ONE) return f32x4.pmin(y, one);
  if (map == RELU) return v128.and(one, f32x4.gt(y, i32x4.splat(0)));
  if (map == EXP) return y;
  if (map == SOFTPLUS) return f32x4.neg(expm14(f32x4.neg(y)));
  return one;
}

/** Whole vectors of a row, and the 1 to 3 floats behind them with a zero in every other lane. */
// @ts-ignore: decorator
@inline function mapRow(map: i32, dst: usize, src: usize, width: i32): void {
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4, src += 16, dst += 16) v128.store(dst, value4(map, v128.load(src)));
  if (j == width) return;
  const live = width - j;
  v128.store(dst, v128.and(value4(map, loadLanes(src, live)), v128.load(MASKS + (<usize>live << 4))));
}

/** Whole vectors two at a time, and the 1 to 3 floats behind them. */
// @ts-ignore: decorator
@inline function slopeRow(map: i32, dst: usize, src: usize, y: usize, width: i32): void {
  let j: i32 = 0;
  for (; j + 8 <= width; j += 8, dst += 32, src += 32, y += 32) {
    const s0 = f32x4.mul(v128.load(src), slope4(map, v128.load(y)));
    const s1 = f32x4.mul(v128.load(src, 16), slope4(map, v128.load(y, 16)));
    v128.store(dst, s0);
    v128.store(dst, s1, 16);
  }
  for (; j < width; j += 4, dst += 16, src += 16, y += 16) {
    const s = f32x4.mul(v128.load(src), slope4(map, v128.load(y)));
    if (j + 4 <= width) v128.store(dst, s);
    else storeLanes(dst, s, width - j);
  }
}

/** Two vectors a turn; they stay neighbours, so that tier C makes them one of 256 bits. */
function eluPlusOneRow(dst: usize, src: usize, width: i32): void {
  const zero = i32x4.splat(0);
  let j: i32 = 0;
  for (; j + 8 <= width; j += 8, src += 32, dst += 32) {
    const x0 = v128.load(src), x1 = v128.load(src, 16);
    const e0 = expFloored4(f32x4.pmin(x0, zero)), e1 = expFloored4(f32x4.pmin(x1, zero));
    v128.store(dst, f32x4.add(f32x4.pmax(x0, zero), e0));
    v128.store(dst, f32x4.add(f32x4.pmax(x1, zero), e1), 16);
  }
  mapRow(ELU_PLUS_ONE, dst, src, width - j);
}

function oneRow(map: i32, dst: usize, src: usize, width: i32): void {
  if (map == ELU_PLUS_ONE) eluPlusOneRow(dst, src, width);
  else if (map == RELU) mapRow(RELU, dst, src, width);
  else if (map == EXP) mapRow(EXP, dst, src, width);
  else if (map == SOFTPLUS) mapRow(SOFTPLUS, dst, src, width);
  else mapRow(IDENTITY, dst, src, width);
}

/** φ of operand rows into scratch rows with zeros up to their stride. */
export function mapRows(map: i32, dst: usize, dstRow: usize, src: usize, srcRow: usize, rows: i32, width: i32): void {
  const zero = i32x4.splat(0);
  const live = <usize>((width + 3) & ~3) << 2;
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow) {
    oneRow(map, dst, src, width);
    for (let at = live; at < dstRow; at += 16) v128.store(dst + at, zero);
  }
}

/** Operand rows as they lie where there is no map, else mapped copies at `to`. */
export function mappedRows(map: i32, from: usize, fromRow: usize, rows: i32, width: i32, to: usize, toRow: usize): usize {
  if (map == IDENTITY) return from;
  mapRows(map, to, toRow, from, fromRow, rows, width);
  return to;
}

/** dst_i <- src_i times the slope of φ at the mapped row y_i; src and y are padded scratch rows, dst may be src. */
export function slopeRows(
  map: i32, dst: usize, dstRow: usize, src: usize, srcRow: usize, y: usize, yRow: usize, rows: i32, width: i32,
): void {
  if (map == IDENTITY && dst == src) return;
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow, y += yRow) {
    if (map == ELU_PLUS_ONE) slopeRow(ELU_PLUS_ONE, dst, src, y, width);
    else if (map == RELU) slopeRow(RELU, dst, src, y, width);
    else if (map == EXP) slopeRow(EXP, dst, src, y, width);
    else if (map == SOFTPLUS) slopeRow(SOFTPLUS, dst, src, y, width);
    else slopeRow(IDENTITY, dst, src, y, width);
  }
}
