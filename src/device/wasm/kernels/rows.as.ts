// One number from a row of floats. The order of the sums depends on the length alone.
import { loadLanes, maxLanes, sumLanes } from "./lanes.as";
import { fma } from "./simd.as";

/** Whether none of n floats is NaN. */
function isOrdered(x: usize, n: i32): bool {
  for (; n >= 4; n -= 4) {
    const x0 = v128.load(x);
    if (v128.any_true(f32x4.ne(x0, x0))) return false;
    x += 16;
  }
  for (; n > 0; n--) {
    if (load<f32>(x) != load<f32>(x)) return false;
    x += 4;
  }
  return true;
}

// @ts-ignore: decorator
@inline function largest(x: usize, n: i32, watched: bool): f32 {
  const first = x, length = n;
  let a = f32x4.splat(-Infinity), b = a, c = a, d = a;
  // NaN as soon as one is: a sum tells for less than a comparison. Both infinities give NaN too, so it is asked again.
  let sum = f32x4.splat(0);
  for (; n >= 16; n -= 16) {
    const x0 = v128.load(x), x1 = v128.load(x, 16), x2 = v128.load(x, 32), x3 = v128.load(x, 48);
    a = f32x4.pmax(a, x0);
    b = f32x4.pmax(b, x1);
    c = f32x4.pmax(c, x2);
    d = f32x4.pmax(d, x3);
    if (watched) sum = f32x4.add(sum, f32x4.add(f32x4.add(x0, x1), f32x4.add(x2, x3)));
    x += 64;
  }
  for (; n >= 4; n -= 4) {
    const x0 = v128.load(x);
    a = f32x4.pmax(a, x0);
    if (watched) sum = f32x4.add(sum, x0);
    x += 16;
  }
  let top = maxLanes(f32x4.pmax(f32x4.pmax(a, b), f32x4.pmax(c, d))), rest: f32 = 0;
  for (; n > 0; n--) {
    const next = load<f32>(x);
    if (next > top) top = next;
    rest += next;
    x += 4;
  }
  if (!watched || (rest == rest && !v128.any_true(f32x4.ne(sum, sum)))) return top;
  return isOrdered(first, length) ? top : <f32>NaN;
}

/** The largest of n floats, NaN if one is; −Infinity of none. */
export function maxRun(x: usize, n: i32): f32 {
  return largest(x, n, true);
}

/** The largest of n floats that are not NaN. */
export function maxOrdered(x: usize, n: i32): f32 {
  return largest(x, n, false);
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
