import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { sumRun } from "../../../device/wasm/kernels/rows.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { factors } from "./parts.as";

// y = (x − mean)·r·w + b with r = 1 / √(variance + eps) for rows of n floats. Kept: mean and r of each row.

/** Σ (x − mean)²; lanes behind the end count as the mean. */
function squares(x: usize, n: i32, mean: f32): f32 {
  const wide = f32x4.splat(mean);
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (; n >= 16; n -= 16) {
    const d0 = f32x4.sub(v128.load(x), wide), d1 = f32x4.sub(v128.load(x, 16), wide);
    const d2 = f32x4.sub(v128.load(x, 32), wide), d3 = f32x4.sub(v128.load(x, 48), wide);
    a = fma(d0, d0, a);
    b = fma(d1, d1, b);
    c = fma(d2, d2, c);
    d = fma(d3, d3, d);
    x += 64;
  }
  for (; n >= 4; n -= 4) {
    const d0 = f32x4.sub(v128.load(x), wide);
    a = fma(d0, d0, a);
    x += 16;
  }
  let sum = sumLanes(f32x4.add(f32x4.add(a, c), f32x4.add(b, d)));
  for (; n > 0; n--) {
    const rest = load<f32>(x) - mean;
    sum += rest * rest;
    x += 4;
  }
  return sum;
}

// @ts-ignore: decorator
@inline function centreStep(x: usize, w: usize, b: usize, y: usize, mean: v128, r: v128, biased: bool, count: i32): void {
  const normed = f32x4.mul(f32x4.sub(take(x, count), mean), r);
  put(y, biased ? fma(normed, take(w, count), take(b, count)) : f32x4.mul(normed, take(w, count)), count);
}

/** y = (x − mean)·r·w + b; without b where that is 0. */
// @ts-ignore: decorator
@inline function centre(x: usize, w: usize, b: usize, y: usize, n: i32, mean: f32, r: f32, biased: bool): void {
  const wideMean = f32x4.splat(mean), wideR = f32x4.splat(r);
  for (; n >= 8; n -= 8) {
    centreStep(x, w, b, y, wideMean, wideR, biased, 4);
    centreStep(x + 16, w + 16, b + 16, y + 16, wideMean, wideR, biased, 4);
    x += 32;
    w += 32;
    y += 32;
    if (biased) b += 32;
  }
  for (; n > 0; n -= 4) {
    centreStep(x, w, b, y, wideMean, wideR, biased, min(4, n));
    x += 16;
    w += 16;
    y += 16;
    if (biased) b += 16;
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

/** dw += dy·h and db += dy for h = d·r. */
// @ts-ignore: decorator
@inline function learnStep(d: v128, grad: v128, dw: usize, db: usize, r: v128, count: i32): void {
  put(dw, fma(f32x4.mul(grad, r), d, take(dw, count)), count);
  put(db, f32x4.add(take(db, count), grad), count);
}

// @ts-ignore: decorator
@inline function gather(x: usize, w: usize, dy: usize, dw: usize, db: usize, room: usize, n: i32, mean: v128, r: v128, learns: bool): void {
  let sum0 = f32x4.splat(0), sum1 = sum0, product0 = sum0, product1 = sum0;
  for (; n >= 8; n -= 8) {
    const d0 = f32x4.sub(v128.load(x), mean), grad0 = v128.load(dy), g0 = f32x4.mul(grad0, v128.load(w));
    sum0 = f32x4.add(sum0, g0);
    product0 = fma(g0, d0, product0);
    if (learns) learnStep(d0, grad0, dw, db, r, 4);
    const d1 = f32x4.sub(v128.load(x, 16), mean), grad1 = v128.load(dy, 16), g1 = f32x4.mul(grad1, v128.load(w, 16));
    sum1 = f32x4.add(sum1, g1);
    product1 = fma(g1, d1, product1);
    if (learns) {
      learnStep(d1, grad1, dw + 16, db + 16, r, 4);
      dw += 32;
      db += 32;
    }
    x += 32;
    w += 32;
    dy += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    const d = f32x4.sub(take(x, count), mean), grad = take(dy, count), g = f32x4.mul(grad, take(w, count));
    sum0 = f32x4.add(sum0, g);
    product0 = fma(g, d, product0);
    if (learns) {
      learnStep(d, grad, dw, db, r, count);
      dw += 16;
      db += 16;
    }
    x += 16;
    w += 16;
    dy += 16;
  }
  store<f32>(room, sumLanes(f32x4.add(sum0, sum1)));
  store<f32>(room, sumLanes(f32x4.add(product0, product1)), 4);
}

/** Σ w·dy, and Σ w·dy·d behind it, for d = x − mean, left in `room`; dw += dy·d·r and db += dy where they learn. */
function gatherRow(x: usize, w: usize, dy: usize, dw: usize, db: usize, room: usize, n: i32, mean: v128, r: v128, learns: bool): void {
  if (learns) gather(x, w, dy, dw, db, room, n, mean, r, true);
  else gather(x, w, dy, dw, db, room, n, mean, r, false);
}

// @ts-ignore: decorator
@inline function slopeStep(x: usize, w: usize, dy: usize, dx: usize, mean: v128, r: v128, base: v128, turn: v128, count: i32): void {
  const d = f32x4.sub(take(x, count), mean), g = f32x4.mul(take(dy, count), take(w, count));
  // Taken from each other before they are scaled: r is large where a row varies little.
  put(dx, fma(d, turn, f32x4.mul(f32x4.sub(g, base), r)), count);
}

/** dx = r (w·dy − base) + turn·(x − mean). */
function slope(x: usize, w: usize, dy: usize, dx: usize, n: i32, mean: v128, r: v128, base: v128, turn: v128): void {
  for (; n >= 8; n -= 8) {
    slopeStep(x, w, dy, dx, mean, r, base, turn, 4);
    slopeStep(x + 16, w + 16, dy + 16, dx + 16, mean, r, base, turn, 4);
    x += 32;
    w += 32;
    dy += 32;
    dx += 32;
  }
  for (; n > 0; n -= 4) {
    slopeStep(x, w, dy, dx, mean, r, base, turn, min(4, n));
    x += 16;
    w += 16;
    dy += 16;
    dx += 16;
  }
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
      const r = load<f32>(kept, 4);
      const mean = v128.load32_splat(kept), wide = f32x4.splat(r);
      gatherRow(x, w, dy, dw, dw + rowBytes, room, n, mean, wide, learns);
      // dx = r (w·dy − mean of w·dy − h · mean of w·dy·h), h = (x − mean)·r.
      const base = f32x4.splat(load<f32>(room) / <f32>n);
      const turn = f32x4.splat(-r * r * r * (load<f32>(room, 4) / <f32>n));
      slope(x, w, dy, pointerAt(args, 4) + at, n, mean, wide, base, turn);
    }
  }
}
