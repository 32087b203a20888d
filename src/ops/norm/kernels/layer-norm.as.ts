import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { sumRun } from "../../../device/wasm/kernels/rows.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { factors } from "./parts.as";

// y = (x − mean)·r·w + b with r = 1 / √(variance + eps) for rows of n floats. Kept: mean and r of each row.

/** Σ (x − mean)²; lanes behind the end count as the mean. */
function squares(x: usize, n: i32, mean: f32): f32 {
  const wide = f32x4.splat(mean);
  let a = f32x4.splat(0), b = a;
  for (; n >= 8; n -= 8) {
    const d0 = f32x4.sub(v128.load(x), wide), d1 = f32x4.sub(v128.load(x, 16), wide);
    a = fma(d0, d0, a);
    b = fma(d1, d1, b);
    x += 32;
  }
  let sum = sumLanes(f32x4.add(a, b));
  for (; n > 0; n--) {
    const d = load<f32>(x) - mean;
    sum += d * d;
    x += 4;
  }
  return sum;
}

/** y = (x − mean)·r·w + b; without b where that is 0. */
// @ts-ignore: decorator
@inline function centre(x: usize, w: usize, b: usize, y: usize, n: i32, mean: f32, r: f32, biased: bool): void {
  const wideMean = f32x4.splat(mean), wideR = f32x4.splat(r);
  for (; n >= 4; n -= 4) {
    const normed = f32x4.mul(f32x4.sub(v128.load(x), wideMean), wideR);
    v128.store(y, biased ? fma(normed, v128.load(w), v128.load(b)) : f32x4.mul(normed, v128.load(w)));
    x += 16;
    w += 16;
    y += 16;
    if (biased) b += 16;
  }
  if (n > 0) {
    const normed = f32x4.mul(f32x4.sub(take(x, n), wideMean), wideR);
    put(y, biased ? fma(normed, take(w, n), take(b, n)) : f32x4.mul(normed, take(w, n)), n);
  }
}

// args: x, w, b, y, kept; n, stride, mode, biased, rows; eps. One unit is a row. Scratch: n floats.
export function layerNorm_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 5), stride = (<usize>intAt(args, 6)) << 2, b = pointerAt(args, 2);
  const w = factors(pointerAt(args, 1), scratch, n, intAt(args, 7));
  for (let row = begin; row < end; row++) {
    const x = pointerAt(args, 0) + (<usize>row) * stride;
    const y = pointerAt(args, 3) + (((<usize>row) * (<usize>n)) << 2);
    const mean = sumRun(x, n) / <f32>n;
    const r: f32 = <f32>1 / sqrt<f32>(squares(x, n, mean) / <f32>n + floatAt(args, 10));
    const kept = pointerAt(args, 4) + ((<usize>row) << 3);
    store<f32>(kept, mean);
    store<f32>(kept, r, 4);
    if (intAt(args, 8) != 0) centre(x, w, b, y, n, mean, r, true);
    else centre(x, w, b, y, n, mean, r, false);
  }
}

// @ts-ignore: decorator
@inline function learnStep(h: v128, grad: v128, dw: usize, db: usize, count: i32): void {
  put(dw, fma(grad, h, take(dw, count)), count);
  put(db, f32x4.add(take(db, count), grad), count);
}

// @ts-ignore: decorator
@inline function gather(x: usize, w: usize, dy: usize, dw: usize, db: usize, room: usize, n: i32, mean: v128, r: v128, learns: bool): void {
  let sum = f32x4.splat(0), product = sum;
  for (; n >= 4; n -= 4) {
    const grad = v128.load(dy), h = f32x4.mul(f32x4.sub(v128.load(x), mean), r);
    const g = f32x4.mul(grad, v128.load(w));
    sum = f32x4.add(sum, g);
    product = fma(g, h, product);
    if (learns) {
      learnStep(h, grad, dw, db, 4);
      dw += 16;
      db += 16;
    }
    x += 16;
    w += 16;
    dy += 16;
  }
  if (n > 0) {
    const grad = take(dy, n), h = f32x4.mul(f32x4.sub(take(x, n), mean), r);
    const g = f32x4.mul(grad, take(w, n));
    sum = f32x4.add(sum, g);
    product = fma(g, h, product);
    if (learns) learnStep(h, grad, dw, db, n);
  }
  store<f32>(room, sumLanes(sum));
  store<f32>(room, sumLanes(product), 4);
}

/** Σ w·dy, and Σ w·dy·h behind it, for h = (x − mean)·r, left in `room`; dw += dy·h and db += dy where they learn. */
function gatherRow(x: usize, w: usize, dy: usize, dw: usize, db: usize, room: usize, n: i32, mean: v128, r: v128, learns: bool): void {
  if (learns) gather(x, w, dy, dw, db, room, n, mean, r, true);
  else gather(x, w, dy, dw, db, room, n, mean, r, false);
}

// @ts-ignore: decorator
@inline function slopeStep(x: usize, w: usize, dy: usize, dx: usize, mean: v128, r: v128, base: v128, turn: v128, count: i32): void {
  const h = f32x4.mul(f32x4.sub(take(x, count), mean), r);
  const g = f32x4.sub(f32x4.mul(take(dy, count), take(w, count)), base);
  put(dx, f32x4.mul(r, f32x4.sub(g, f32x4.mul(h, turn))), count);
}

/** dx = r (w·dy − base − h·turn). */
function slope(x: usize, w: usize, dy: usize, dx: usize, n: i32, mean: v128, r: v128, base: v128, turn: v128): void {
  for (; n >= 4; n -= 4) {
    slopeStep(x, w, dy, dx, mean, r, base, turn, 4);
    x += 16;
    w += 16;
    dy += 16;
    dx += 16;
  }
  if (n > 0) slopeStep(x, w, dy, dx, mean, r, base, turn, n);
}

// args: x, w, kept, dy, dx, dwb; n, stride, mode, rows, block, learns. One unit is `block` rows, whose part of the
// gradients by w and by b is row `unit` of dwb [units, 2, n]. Scratch: n + 2 floats.
export function layerNorm_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 6), stride = (<usize>intAt(args, 7)) << 2, rows = intAt(args, 9), block = intAt(args, 10);
  const learns = intAt(args, 11) != 0;
  const w = factors(pointerAt(args, 1), scratch, n, intAt(args, 8));
  const rowBytes = (<usize>n) << 2, room = scratch + rowBytes;
  for (let unit = begin; unit < end; unit++) {
    const dw = pointerAt(args, 5) + (<usize>unit) * rowBytes * 2;
    if (learns) memory.fill(dw, 0, rowBytes * 2);
    const last = min((unit + 1) * block, rows);
    for (let row = unit * block; row < last; row++) {
      const at = (<usize>row) * rowBytes;
      const kept = pointerAt(args, 2) + ((<usize>row) << 3);
      const x = pointerAt(args, 0) + (<usize>row) * stride;
      const dy = pointerAt(args, 3) + at;
      const mean = v128.load32_splat(kept), r = v128.load32_splat(kept, 4);
      gatherRow(x, w, dy, dw, dw + rowBytes, room, n, mean, r, learns);
      const base = f32x4.splat(load<f32>(room) / <f32>n), turn = f32x4.splat(load<f32>(room, 4) / <f32>n);
      slope(x, w, dy, pointerAt(args, 4) + at, n, mean, r, base, turn);
    }
  }
}
