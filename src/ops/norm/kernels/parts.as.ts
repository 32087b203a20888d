// What the norms share: vectors of four lanes or of the one to three that are left, prepared weights, row passes.
import { loadLanes, storeLanes, sumLanes } from "../../../device/wasm/kernels/lanes.as";
import { fma } from "../../../device/wasm/kernels/simd.as";

/** Four floats, or the first `count` of them. */
// @ts-ignore: decorator
@inline export function take(p: usize, count: i32): v128 {
  return count == 4 ? v128.load(p) : loadLanes(p, count);
}

// @ts-ignore: decorator
@inline export function put(p: usize, x: v128, count: i32): void {
  if (count == 4) v128.store(p, x);
  else storeLanes(p, x, count);
}

/** The weights as factors: w (mode 1), 1 + w (mode 2) or ones (mode 0), written to `room` where they are not w. */
export function factors(w: usize, room: usize, n: i32, mode: i32): usize {
  if (mode == 1) return w;
  const one = f32x4.splat(1);
  let to = room;
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    put(to, mode == 2 ? f32x4.add(one, take(w, count)) : one, count);
    to += 16;
    w += 16;
  }
  return room;
}

/** y = r·x·w. */
export function scaleRow(x: usize, w: usize, y: usize, n: i32, r: f32): void {
  const wide = f32x4.splat(r);
  for (; n >= 8; n -= 8) {
    v128.store(y, f32x4.mul(f32x4.mul(v128.load(x), wide), v128.load(w)));
    v128.store(y, f32x4.mul(f32x4.mul(v128.load(x, 16), wide), v128.load(w, 16)), 16);
    x += 32;
    w += 32;
    y += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    put(y, f32x4.mul(f32x4.mul(take(x, count), wide), take(w, count)), count);
    x += 16;
    w += 16;
    y += 16;
  }
}

/** Σ dy·w·x. */
export function tripleRow(x: usize, w: usize, dy: usize, n: i32): f32 {
  let a = f32x4.splat(0), b = a;
  for (; n >= 8; n -= 8) {
    a = fma(f32x4.mul(v128.load(dy), v128.load(w)), v128.load(x), a);
    b = fma(f32x4.mul(v128.load(dy, 16), v128.load(w, 16)), v128.load(x, 16), b);
    x += 32;
    w += 32;
    dy += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    a = fma(f32x4.mul(take(dy, count), take(w, count)), take(x, count), a);
    x += 16;
    w += 16;
    dy += 16;
  }
  return sumLanes(f32x4.add(a, b));
}

/** dw += r·x·dy, one row of many. */
export function weightRow(x: usize, dy: usize, dw: usize, n: i32, r: f32): void {
  const wide = f32x4.splat(r);
  for (; n >= 8; n -= 8) {
    v128.store(dw, fma(f32x4.mul(v128.load(x), wide), v128.load(dy), v128.load(dw)));
    v128.store(dw, fma(f32x4.mul(v128.load(x, 16), wide), v128.load(dy, 16), v128.load(dw, 16)), 16);
    x += 32;
    dy += 32;
    dw += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    put(dw, fma(f32x4.mul(take(x, count), wide), take(dy, count), take(dw, count)), count);
    x += 16;
    dy += 16;
    dw += 16;
  }
}

/** dx = r·w·dy − c·x. */
export function slopeRow(x: usize, w: usize, dy: usize, dx: usize, n: i32, r: f32, c: f32): void {
  const wideR = f32x4.splat(r), minusC = f32x4.splat(-c);
  for (; n >= 8; n -= 8) {
    v128.store(dx, fma(minusC, v128.load(x), f32x4.mul(f32x4.mul(v128.load(dy), v128.load(w)), wideR)));
    v128.store(dx, fma(minusC, v128.load(x, 16), f32x4.mul(f32x4.mul(v128.load(dy, 16), v128.load(w, 16)), wideR)), 16);
    x += 32;
    w += 32;
    dy += 32;
    dx += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    put(dx, fma(minusC, take(x, count), f32x4.mul(f32x4.mul(take(dy, count), take(w, count)), wideR)), count);
    x += 16;
    w += 16;
    dy += 16;
    dx += 16;
  }
}
