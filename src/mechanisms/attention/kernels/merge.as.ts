// Outputs of separate sets of keys joined as if all had been one set: each part counts by exp(its log-sum-exp).
import { take } from "../../../device/wasm/kernels/lanes.as";
import { log4 } from "../../../device/wasm/kernels/log.as";
import { exp1, exp4 } from "../../../device/wasm/kernels/math.as";
import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** Rows of one unit. */
const ROWS: i32 = 64;

/** Parts of one job: part n lies `n · stride` bytes behind the first, addresses wrapping. */
@unmanaged
class Parts {
  count: i32;
  width: i32;
  outputs: usize;
  outputStride: usize;
  lse: usize;
  lseStride: usize;
  /** Merged rows: heads side by side, where those of a stack come head after head. */
  heads: i32;
  time: i32;
}

// args: outputs [P,rows,V], lse [P,rows], output [rows,V], lse [rows]; rows, V, P, H, T: row (b·H + h)·T + t of the stack
// becomes row (b·T + t)·H + h. One unit is 64 rows. Scratch: 64 numbers for each part and 64 more.
export function attention_merge_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const parts = changetype<Parts>(scratch);
  const rows = openStack(args, 4, parts);
  parts.heads = intAt(args, 7);
  parts.time = intAt(args, 8);
  for (let row = begin * ROWS; row < min(end * ROWS, rows); row += ROWS)
    mergeRows(parts, row, min(row + ROWS, rows), pointerAt(args, 2), pointerAt(args, 3), scratch + 64);
}

// args: output and lse of the first part, of the second, output [rows,V], lse [rows]; rows, V. One unit is 64 rows.
// Scratch: as above.
export function attention_join_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const parts = changetype<Parts>(scratch);
  const rows = openPair(args, 6, parts);
  parts.heads = 1;
  parts.time = rows;
  for (let row = begin * ROWS; row < min(end * ROWS, rows); row += ROWS)
    mergeRows(parts, row, min(row + ROWS, rows), pointerAt(args, 4), pointerAt(args, 5), scratch + 64);
}

// args: output and lse of the first part, of the second, output, lse, dOutput, dLse, gradients of the first output and
// lse, of the second; rows, V, 1 where dLse counts. One unit is 64 rows.
export function attention_join_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const parts = changetype<Parts>(scratch);
  const rows = openPair(args, 12, parts);
  for (let row = begin * ROWS; row < min(end * ROWS, rows); row++) {
    const dLse: f32 = intAt(args, 14) ? load<f32>(pointerAt(args, 7) + (<usize>row << 2)) : 0;
    for (let n = 0; n < 2; n++)
      gradePart(parts, row, n, pointerAt(args, 4), pointerAt(args, 6), dLse, pointerAt(args, 8 + 2 * n), pointerAt(args, 9 + 2 * n));
  }
}

function openStack(args: usize, ints: i32, parts: Parts): i32 {
  const rows = intAt(args, ints);
  parts.width = intAt(args, ints + 1);
  parts.count = intAt(args, ints + 2);
  parts.outputs = pointerAt(args, 0);
  parts.outputStride = <usize>rows * parts.width << 2;
  parts.lse = pointerAt(args, 1);
  parts.lseStride = <usize>rows << 2;
  return rows;
}

function openPair(args: usize, ints: i32, parts: Parts): i32 {
  parts.width = intAt(args, ints + 1);
  parts.count = 2;
  parts.outputs = pointerAt(args, 0);
  parts.outputStride = pointerAt(args, 2) - parts.outputs;
  parts.lse = pointerAt(args, 1);
  parts.lseStride = pointerAt(args, 3) - parts.lse;
  return intAt(args, ints);
}

// @ts-ignore: decorator
@inline function lseOf(parts: Parts, row: i32, n: i32): f32 {
  return load<f32>(parts.lse + <usize>n * parts.lseStride + (<usize>row << 2));
}

function largestOf(parts: Parts, row: i32): f32 {
  let largest: f32 = -Infinity;
  for (let n = 0; n < parts.count; n++) largest = max(largest, lseOf(parts, row, n));
  return largest;
}

/** Σ_n exp(lse_n - largest). */
function sumOf(parts: Parts, row: i32, largest: f32): f32 {
  let sum: f32 = 0;
  for (let n = 0; n < parts.count; n++) sum += exp1(lseOf(parts, row, n) - largest);
  return sum;
}

/** Merges rows [first, last) of the stack, at most ROWS. */
function mergeRows(parts: Parts, first: i32, last: i32, output: usize, lse: usize, weights: usize): void {
  const bytes = <usize>parts.width << 2;
  let line = first / parts.time, t = first % parts.time;
  for (let row = first; row < last; row += 4) weigh(parts, row, min(4, last - row), weights + (<usize>(row - first) << 2));
  for (let row = first; row < last; row++, t++) {
    if (t == parts.time) t = 0, line++;
    const merged = <usize>(line / parts.heads * parts.time + t) * parts.heads + line % parts.heads;
    const to = output + merged * bytes;
    const own = weights + (<usize>(row - first) << 2);
    store<f32>(lse + (merged << 2), load<f32>(own + <usize>(parts.count * ROWS << 2)));
    memory.fill(to, 0, bytes);
    for (let n = 0; n < parts.count; n++) {
      const weight = load<f32>(own + (<usize>(n * ROWS) << 2));
      if (weight != 0) addScaled(to, weight, parts.outputs + <usize>n * parts.outputStride + <usize>row * bytes, parts.width);
    }
  }
}

/** What every part of up to four rows counts for, 0 where all are empty; behind those the rows' log-sum-exp. */
function weigh(parts: Parts, row: i32, count: i32, weights: usize): void {
  const from = parts.lse + (<usize>row << 2);
  let largest = f32x4.splat(-Infinity);
  for (let n = 0; n < parts.count; n++) largest = f32x4.max(largest, take(from + <usize>n * parts.lseStride, count));
  const empty = f32x4.eq(largest, f32x4.splat(-Infinity));
  const shift = v128.andnot(largest, empty);
  let sum = f32x4.splat(0), at = weights;
  for (let n = 0; n < parts.count; n++) {
    const weight = exp4(f32x4.sub(take(from + <usize>n * parts.lseStride, count), shift));
    v128.store(at, weight);
    sum = f32x4.add(sum, weight);
    at += ROWS << 2;
  }
  v128.store(at, f32x4.add(largest, log4(sum)));
  for (; at > weights; ) {
    at -= ROWS << 2;
    v128.store(at, v128.andnot(f32x4.div(v128.load(at), sum), empty));
  }
}

/**
 * dO_n = w dO and dLse_n = w (dO·(O_n - O) + dLse) with w as in the forward pass: the joined lse of large numbers has too
 * few digits left to make it from.
 */
function gradePart(parts: Parts, row: i32, n: i32, output: usize, dOutput: usize, dLse: f32, dPart: usize, dPartLse: usize): void {
  const offset = <usize>row * parts.width << 2;
  const own = lseOf(parts, row, n);
  const largest = largestOf(parts, row);
  const weight: f32 = own == -Infinity ? 0 : exp1(own - largest) / sumOf(parts, row, largest);
  const part = parts.outputs + <usize>n * parts.outputStride + offset;
  memory.fill(dPart + offset, 0, <usize>parts.width << 2);
  if (weight == 0) {
    store<f32>(dPartLse + (<usize>row << 2), 0);
    return;
  }
  addScaled(dPart + offset, weight, dOutput + offset, parts.width);
  let sum: f32 = dLse;
  for (let c = 0; c < parts.width; c++) {
    const at = <usize>c << 2;
    sum += load<f32>(dOutput + offset + at) * (load<f32>(part + at) - load<f32>(output + offset + at));
  }
  store<f32>(dPartLse + (<usize>row << 2), weight * sum);
}

function addScaled(to: usize, factor: f32, from: usize, width: i32): void {
  const wide = f32x4.splat(factor);
  let i: i32 = 0;
  for (; i + 4 <= width; i += 4) {
    const at = <usize>i << 2;
    v128.store(to + at, fma(wide, v128.load(from + at), v128.load(to + at)));
  }
  for (; i < width; i++) {
    const at = <usize>i << 2;
    v128.store32_lane(to + at, fma(wide, v128.load32_zero(from + at), v128.load32_zero(to + at)), 0);
  }
}
