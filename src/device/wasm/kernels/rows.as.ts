// One number from a row of floats. The order of the sums depends on the length alone.
import { loadLanes, maxLanes, sumLanes } from "./lanes.as";
import { fma } from "./simd.as";

/** The largest of n floats, NaN if one is; −Infinity of none. */
export function maxRun(x: usize, n: i32): f32 {
  const last = x + ((<usize>n) << 2);
  const largest = maxOrdered(x, n);
  let a = f32x4.splat(0), b = a;
  for (; x + 32 <= last; x += 32) {
    const x0 = v128.load(x), x1 = v128.load(x, 16);
    a = v128.or(a, f32x4.ne(x0, x0));
    b = v128.or(b, f32x4.ne(x1, x1));
  }
  let ordered = !v128.any_true(v128.or(a, b));
  for (; x < last; x += 4) ordered = ordered && load<f32>(x) == load<f32>(x);
  return ordered ? largest : <f32>NaN;
}

/** The largest of n floats that are not NaN. */
export function maxOrdered(x: usize, n: i32): f32 {
  let a = f32x4.splat(-Infinity), b = a, c = a, d = a;
  for (; n >= 16; n -= 16) {
    a = f32x4.pmax(a, v128.load(x));
    b = f32x4.pmax(b, v128.load(x, 16));
    c = f32x4.pmax(c, v128.load(x, 32));
    d = f32x4.pmax(d, v128.load(x, 48));
    x += 64;
  }
  for (; n >= 4; n -= 4) {
    a = f32x4.pmax(a, v128.load(x));
    x += 16;
  }
  let largest = maxLanes(f32x4.pmax(f32x4.pmax(a, b), f32x4.pmax(c, d)));
  for (; n > 0; n--) {
    const next = load<f32>(x);
    if (next > largest) largest = next;
    x += 4;
  }
  return largest;
}

/** The sum of n floats. */
export function sumRun(x: usize, n: i32): f32 {
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (; n >= 16; n -= 16) {
    a = f32x4.add(a, v128.load(x));
    b = f32x4.add(b, v128.load(x, 16));
    c = f32x4.add(c, v128.load(x, 32));
    d = f32x4.add(d, v128.load(x, 48));
    x += 64;
  }
  for (; n >= 4; n -= 4) {
    a = f32x4.add(a, v128.load(x));
    x += 16;
  }
  if (n > 0) b = f32x4.add(b, loadLanes(x, n));
  return sumLanes(f32x4.add(f32x4.add(a, c), f32x4.add(b, d)));
}

/** The sum of n products. */
export function dotRun(x: usize, z: usize, n: i32): f32 {
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (; n >= 16; n -= 16) {
    a = fma(v128.load(x), v128.load(z), a);
    b = fma(v128.load(x, 16), v128.load(z, 16), b);
    c = fma(v128.load(x, 32), v128.load(z, 32), c);
    d = fma(v128.load(x, 48), v128.load(z, 48), d);
    x += 64;
    z += 64;
  }
  for (; n >= 4; n -= 4) {
    a = fma(v128.load(x), v128.load(z), a);
    x += 16;
    z += 16;
  }
  if (n > 0) b = fma(loadLanes(x, n), loadLanes(z, n), b);
  return sumLanes(f32x4.add(f32x4.add(a, c), f32x4.add(b, d)));
}

/** y = factor·x for n floats; y may be x. */
export function scaleRun(x: usize, y: usize, n: i32, factor: f32): void {
  const wide = f32x4.splat(factor);
  for (; n >= 16; n -= 16) {
    v128.store(y, f32x4.mul(v128.load(x), wide));
    v128.store(y, f32x4.mul(v128.load(x, 16), wide), 16);
    v128.store(y, f32x4.mul(v128.load(x, 32), wide), 32);
    v128.store(y, f32x4.mul(v128.load(x, 48), wide), 48);
    x += 64;
    y += 64;
  }
  for (; n > 0; n--) {
    store<f32>(y, load<f32>(x) * factor);
    x += 4;
    y += 4;
  }
}
