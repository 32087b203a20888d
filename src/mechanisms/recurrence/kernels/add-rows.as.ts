// Row-wise pieces of the additive recurrence. Rows in scratch are padded with zeros to whole vectors, rows of operands
// are not: their last lanes are loaded and stored one by one. Strides are in bytes.
import { fma } from "../../../device/wasm/kernels/simd.as";

/** n rounded up to whole vectors of four. */
// @ts-ignore: decorator
@inline export function padded(n: i32): i32 {
  return (n + 3) & ~3;
}

/** The first 1 to 3 floats at p and zeros behind them. */
export function loadTail(p: usize, n: i32): v128 {
  let x = v128.load32_zero(p);
  if (n > 1) x = v128.load32_lane(p, x, 1, 4);
  if (n > 2) x = v128.load32_lane(p, x, 2, 8);
  return x;
}

/** Stores the first 1 to 3 lanes. */
export function storeTail(p: usize, x: v128, n: i32): void {
  v128.store32_lane(p, x, 0);
  if (n > 1) v128.store32_lane(p, x, 1, 4);
  if (n > 2) v128.store32_lane(p, x, 2, 8);
}

/** Four floats of an operand row of which `live` are left, zeros behind them. */
// @ts-ignore: decorator
@inline export function loadLive(p: usize, live: i32): v128 {
  return live >= 4 ? v128.load(p) : loadTail(p, live);
}

/** Stores as many lanes as are left of an operand row. */
// @ts-ignore: decorator
@inline export function storeLive(p: usize, x: v128, live: i32): void {
  if (live >= 4) v128.store(p, x);
  else storeTail(p, x, live);
}

/** The sum of four lanes. */
// @ts-ignore: decorator
@inline export function sumLanes(x: v128): f32 {
  const pair = f32x4.add(x, i32x4.shuffle(x, x, 2, 3, 2, 3));
  return f32x4.extract_lane(pair, 0) + f32x4.extract_lane(pair, 1);
}

/** Zeros over n floats, n a multiple of four. */
export function clear(p: usize, n: i32): void {
  const zero = i32x4.splat(0);
  for (const end = p + (<usize>n << 2); p < end; p += 16) v128.store(p, zero);
}

/** n copies of x, n a multiple of four. */
export function fillWith(p: usize, n: i32, x: f32): void {
  const wide = f32x4.splat(x);
  for (const end = p + (<usize>n << 2); p < end; p += 16) v128.store(p, wide);
}

/** An operand row into a padded scratch row. */
export function loadRow(dst: usize, src: usize, width: i32): void {
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4, src += 16, dst += 16) v128.store(dst, v128.load(src));
  if (j < width) v128.store(dst, loadTail(src, width - j));
}

/** A padded scratch row into an operand row. */
export function storeRow(dst: usize, src: usize, width: i32): void {
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4, src += 16, dst += 16) v128.store(dst, v128.load(src));
  if (j < width) storeTail(dst, v128.load(src), width - j);
}

/** A padded scratch row added to an operand row. */
export function accumulateRow(dst: usize, src: usize, width: i32): void {
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4, src += 16, dst += 16) v128.store(dst, f32x4.add(v128.load(dst), v128.load(src)));
  if (j < width) storeTail(dst, f32x4.add(loadTail(dst, width - j), v128.load(src)), width - j);
}

/**
 * Reads one word of every line of operand rows, so that many lines are under way at once; what comes back is something of
 * them that has to be used. Where rows are first met in the middle of products only a few are.
 */
export function touchRows(src: usize, srcRow: usize, rows: i32, width: i32): i32 {
  let seen: i32 = 0;
  const bytes = <usize>width << 2;
  for (let i: i32 = 0; i < rows; i++, src += srcRow)
    for (let j: usize = 0; j < bytes; j += 64) seen |= load<i32>(src + j);
  return seen;
}

/** Operand rows into scratch rows with zeros up to their stride; all zeros where src is 0. */
export function loadRows(dst: usize, dstRow: usize, src: usize, srcRow: usize, rows: i32, width: i32): void {
  const zero = i32x4.splat(0);
  const tail = src ? width & 3 : 0;
  const whole = src ? <usize>(width - tail) << 2 : 0;
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow) {
    let j: usize = 0;
    for (; j < whole; j += 16) v128.store(dst + j, v128.load(src + j));
    if (tail) {
      v128.store(dst + j, loadTail(src + j, tail));
      j += 16;
    }
    for (; j < dstRow; j += 16) v128.store(dst + j, zero);
  }
}

/** Padded scratch rows into operand rows, replacing or adding. */
export function storeRows(dst: usize, dstRow: usize, src: usize, srcRow: usize, rows: i32, width: i32, add: bool): void {
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow) {
    if (add) accumulateRow(dst, src, width);
    else storeRow(dst, src, width);
  }
}

/**
 * dst_i = alpha_i · src_i ∘ table_i into padded scratch rows: `decay` 0 has no table, 1 and 2 one float a row, 3 a
 * padded row of floats. src may be an operand or dst itself.
 */
export function scaleRows(
  decay: i32, dst: usize, dstRow: usize, src: usize, srcRow: usize, table: usize, tableRow: usize, alpha: usize,
  rows: i32, width: i32,
): void {
  const tail = width & 3;
  const whole = <usize>(width - tail) << 2;
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow) {
    let factor = load<f32>(alpha + (<usize>i << 2));
    if (decay == 1 || decay == 2) factor *= load<f32>(table + (<usize>i << 2));
    const wide = f32x4.splat(factor);
    if (decay == 3) {
      const t = table + <usize>i * tableRow;
      for (let j: usize = 0; j < whole; j += 16)
        v128.store(dst + j, f32x4.mul(f32x4.mul(v128.load(src + j), wide), v128.load(t + j)));
      if (tail) v128.store(dst + whole, f32x4.mul(f32x4.mul(loadTail(src + whole, tail), wide), v128.load(t + whole)));
    } else {
      let j: usize = 0;
      for (; j + 32 <= whole; j += 32) {
        const x = f32x4.mul(v128.load(src + j), wide);
        const y = f32x4.mul(v128.load(src + j, 16), wide);
        v128.store(dst + j, x);
        v128.store(dst + j, y, 16);
      }
      if (j < whole) v128.store(dst + j, f32x4.mul(v128.load(src + j), wide));
      if (tail) v128.store(dst + whole, f32x4.mul(loadTail(src + whole, tail), wide));
    }
  }
}

/** dst += factor · src over a padded width; both rows are scratch. */
export function addScaled(dst: usize, src: usize, factor: f32, width: i32): void {
  const wide = f32x4.splat(factor);
  for (const end = dst + (<usize>width << 2); dst < end; dst += 16, src += 16)
    v128.store(dst, fma(wide, v128.load(src), v128.load(dst)));
}

/**
 * Operand rows into scratch rows as `loadRows` does it, and whether all that was copied is finite: each number times 0
 * is 0 then.
 */
export function loadFiniteRows(dst: usize, dstRow: usize, src: usize, srcRow: usize, rows: i32, width: i32): bool {
  const zero = i32x4.splat(0);
  const tail = width & 3;
  const whole = <usize>(width - tail) << 2;
  let a = zero, b = zero;
  for (let i: i32 = 0; i < rows; i++, dst += dstRow, src += srcRow) {
    let j: usize = 0;
    for (; j + 32 <= whole; j += 32) {
      const x = v128.load(src + j);
      const y = v128.load(src + j, 16);
      v128.store(dst + j, x);
      v128.store(dst + j, y, 16);
      a = fma(x, zero, a);
      b = fma(y, zero, b);
    }
    for (; j < whole; j += 16) {
      const x = v128.load(src + j);
      v128.store(dst + j, x);
      a = fma(x, zero, a);
    }
    if (tail) {
      const x = loadTail(src + j, tail);
      v128.store(dst + j, x);
      a = fma(x, zero, a);
      j += 16;
    }
    for (; j < dstRow; j += 16) v128.store(dst + j, zero);
  }
  return i32x4.all_true(f32x4.eq(f32x4.add(a, b), zero));
}

/** Adds operand rows to a padded scratch row, each column one ascending sum. */
export function sumRows(dst: usize, src: usize, srcRow: usize, rows: i32, width: i32): void {
  let j: i32 = 0;
  for (; j + 16 <= width; j += 16, src += 64, dst += 64) {
    let a = v128.load(dst), b = v128.load(dst, 16), c = v128.load(dst, 32), d = v128.load(dst, 48);
    let at = src;
    for (let i = rows; i > 0; i--, at += srcRow) {
      a = f32x4.add(a, v128.load(at));
      b = f32x4.add(b, v128.load(at, 16));
      c = f32x4.add(c, v128.load(at, 32));
      d = f32x4.add(d, v128.load(at, 48));
    }
    v128.store(dst, a);
    v128.store(dst, b, 16);
    v128.store(dst, c, 32);
    v128.store(dst, d, 48);
  }
  for (; j < width; j += 4, src += 16, dst += 16) {
    let a = v128.load(dst);
    let at = src;
    for (let i = rows; i > 0; i--, at += srcRow) a = f32x4.add(a, loadLive(at, width - j));
    v128.store(dst, a);
  }
}

/** The dot product of an operand row with a padded scratch row: sums over every fourth vector, then these, then the lanes. */
export function dot(row: usize, scratch: usize, width: i32): f32 {
  let sum = i32x4.splat(0);
  let j: i32 = 0;
  if (width >= 16) {
    let b = sum, c = sum, d = sum;
    for (; j + 16 <= width; j += 16, row += 64, scratch += 64) {
      sum = fma(v128.load(row), v128.load(scratch), sum);
      b = fma(v128.load(row, 16), v128.load(scratch, 16), b);
      c = fma(v128.load(row, 32), v128.load(scratch, 32), c);
      d = fma(v128.load(row, 48), v128.load(scratch, 48), d);
    }
    sum = f32x4.add(f32x4.add(sum, b), f32x4.add(c, d));
  }
  for (; j + 4 <= width; j += 4, row += 16, scratch += 16) sum = fma(v128.load(row), v128.load(scratch), sum);
  if (j < width) sum = fma(loadTail(row, width - j), v128.load(scratch), sum);
  return sumLanes(sum);
}
