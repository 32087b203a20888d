// What the norms share: prepared weights, row passes.
import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { fma } from "../../../device/wasm/kernels/simd.as";

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

/** dw += r·x·dy for four lanes of many rows. */
// @ts-ignore: decorator
@inline function learnStep(x: v128, dy: v128, dw: usize, r: v128, count: i32): void {
  put(dw, fma(f32x4.mul(x, r), dy, take(dw, count)), count);
}

// @ts-ignore: decorator
@inline function gather(x: usize, w: usize, dy: usize, dw: usize, n: i32, r: v128, learns: bool): f32 {
  let a = f32x4.splat(0), b = a;
  for (; n >= 8; n -= 8) {
    const x0 = v128.load(x), x1 = v128.load(x, 16), g0 = v128.load(dy), g1 = v128.load(dy, 16);
    a = fma(f32x4.mul(g0, v128.load(w)), x0, a);
    b = fma(f32x4.mul(g1, v128.load(w, 16)), x1, b);
    if (learns) {
      v128.store(dw, fma(f32x4.mul(x0, r), g0, v128.load(dw)));
      v128.store(dw, fma(f32x4.mul(x1, r), g1, v128.load(dw, 16)), 16);
      dw += 32;
    }
    x += 32;
    w += 32;
    dy += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    const x0 = take(x, count), g0 = take(dy, count);
    a = fma(f32x4.mul(g0, take(w, count)), x0, a);
    if (learns) {
      learnStep(x0, g0, dw, r, count);
      dw += 16;
    }
    x += 16;
    w += 16;
    dy += 16;
  }
  return sumLanes(f32x4.add(a, b));
}

/** Σ dy·w·x, and dw += r·x·dy where weights learn. */
export function gatherRow(x: usize, w: usize, dy: usize, dw: usize, n: i32, r: f32, learns: bool): f32 {
  const wide = f32x4.splat(r);
  if (learns) return gather(x, w, dy, dw, n, wide, true);
  return gather(x, w, dy, dw, n, wide, false);
}

/** dx = r·w·dy − c·x. */
export function slopeRow(x: usize, w: usize, dy: usize, dx: usize, n: i32, r: f32, c: f32): void {
  const wide = f32x4.splat(r), minusC = f32x4.splat(-c);
  for (; n >= 8; n -= 8) {
    v128.store(dx, fma(minusC, v128.load(x), f32x4.mul(f32x4.mul(v128.load(dy), v128.load(w)), wide)));
    v128.store(dx, fma(minusC, v128.load(x, 16), f32x4.mul(f32x4.mul(v128.load(dy, 16), v128.load(w, 16)), wide)), 16);
    x += 32;
    w += 32;
    dy += 32;
    dx += 32;
  }
  for (; n > 0; n -= 4) {
    const count = min(4, n);
    put(dx, fma(minusC, take(x, count), f32x4.mul(f32x4.mul(take(dy, count), take(w, count)), wide)), count);
    x += 16;
    w += 16;
    dy += 16;
    dx += 16;
  }
}
