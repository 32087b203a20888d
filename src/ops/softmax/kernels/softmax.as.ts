import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { log1 } from "../../../device/wasm/kernels/log.as";
import { expBelow4 } from "../../../device/wasm/kernels/math.as";
import { dotRun, maxOrdered, scaleRun, sumRun } from "../../../device/wasm/kernels/rows.as";
import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Rows of n floats, `stride` floats apart in x and side by side elsewhere. One unit is a row.

/** Σ exp(x − shift), the terms written to y unless y is 0. */
// @ts-ignore: decorator
@inline function expSum(x: usize, y: usize, n: i32, shift: f32, keeps: bool): f32 {
  const wide = f32x4.splat(shift);
  let a = f32x4.splat(0), b = a;
  for (; n >= 8; n -= 8) {
    const e0 = expBelow4(f32x4.sub(v128.load(x), wide));
    a = f32x4.add(a, e0);
    if (keeps) v128.store(y, e0);
    const e1 = expBelow4(f32x4.sub(v128.load(x, 16), wide));
    b = f32x4.add(b, e1);
    if (keeps) v128.store(y, e1, 16);
    x += 32;
    y += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    const inside = f32x4.lt(f32x4(0, 1, 2, 3), f32x4.splat(<f32>count));
    const e = v128.and(expBelow4(f32x4.sub(take(x, count), wide)), inside);
    a = f32x4.add(a, e);
    if (keeps) {
      put(y, e, count);
      y += 16;
    }
    x += 16;
  }
  return sumLanes(f32x4.add(a, b));
}

// args: x, y; n, stride.
export function softmax_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2), stride = (<usize>intAt(args, 3)) << 2;
  for (let row = begin; row < end; row++) {
    const x = pointerAt(args, 0) + (<usize>row) * stride;
    const y = pointerAt(args, 1) + (((<usize>row) * (<usize>n)) << 2);
    scaleRun(y, y, n, 1 / expSum(x, y, n, maxOrdered(x, n), true));
  }
}

// args: y, dy, dx; n. dx = y (dy − Σ y dy).
export function softmax_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3);
  for (let row = begin; row < end; row++) {
    const at = ((<usize>row) * (<usize>n)) << 2;
    let y = pointerAt(args, 0) + at, dy = pointerAt(args, 1) + at, dx = pointerAt(args, 2) + at;
    const mean = dotRun(y, dy, n);
    const wide = f32x4.splat(mean);
    let left = n;
    for (; left >= 8; left -= 8) {
      v128.store(dx, f32x4.mul(v128.load(y), f32x4.sub(v128.load(dy), wide)));
      v128.store(dx, f32x4.mul(v128.load(y, 16), f32x4.sub(v128.load(dy, 16), wide)), 16);
      y += 32;
      dy += 32;
      dx += 32;
    }
    for (; left > 0; left--) {
      store<f32>(dx, load<f32>(y) * (load<f32>(dy) - mean));
      y += 4;
      dy += 4;
      dx += 4;
    }
  }
}

// args: x, y; n, stride. y = (x − max) − log Σ exp(x − max).
export function logSoftmax_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2), stride = (<usize>intAt(args, 3)) << 2;
  for (let row = begin; row < end; row++) {
    let x = pointerAt(args, 0) + (<usize>row) * stride;
    let y = pointerAt(args, 1) + (((<usize>row) * (<usize>n)) << 2);
    const shift = maxOrdered(x, n);
    const rest = log1(expSum(x, 0, n, shift, false));
    const wide = f32x4.splat(shift), wideRest = f32x4.splat(rest);
    let left = n;
    for (; left >= 4; left -= 4) {
      v128.store(y, f32x4.sub(f32x4.sub(v128.load(x), wide), wideRest));
      x += 16;
      y += 16;
    }
    for (; left > 0; left--) {
      store<f32>(y, load<f32>(x) - shift - rest);
      x += 4;
      y += 4;
    }
  }
}

/** dx = dy − exp(y) Σ dy for four lanes. */
// @ts-ignore: decorator
@inline function logSlope(y: v128, dy: v128, minusSum: v128): v128 {
  return fma(expBelow4(y), minusSum, dy);
}

// args: y, dy, dx; n.
export function logSoftmax_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3);
  for (let row = begin; row < end; row++) {
    const at = ((<usize>row) * (<usize>n)) << 2;
    let y = pointerAt(args, 0) + at, dy = pointerAt(args, 1) + at, dx = pointerAt(args, 2) + at;
    const minusSum = f32x4.splat(-sumRun(dy, n));
    let left = n;
    for (; left >= 8; left -= 8) {
      v128.store(dx, logSlope(v128.load(y), v128.load(dy), minusSum));
      v128.store(dx, logSlope(v128.load(y, 16), v128.load(dy, 16), minusSum), 16);
      y += 32;
      dy += 32;
      dx += 32;
    }
    for (; left > 0; left -= 4) {
      const count = min(4, left);
      put(dx, logSlope(take(y, count), take(dy, count), minusSum), count);
      y += 16;
      dy += 16;
      dx += 16;
    }
  }
}
