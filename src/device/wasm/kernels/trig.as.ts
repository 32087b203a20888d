// Sine and cosine of four float32 lanes. A lane's result depends on nothing but that lane.
import { fma } from "./simd.as";

// x = n π/2 + r with |r| <= π/4: π/2 in three parts, whose products with n are exact up to n = 2^13, taken away in turn.
// Then the sine or the cosine of r, by n mod 4, as polynomials in r² (S. Moshier's Cephes has the coefficients).
// prettier-ignore
const TRIG = memory.data<f32>([
  0.63661977, 0.63661977, 0.63661977, 0.63661977, // 0: 2 / π
  12582912, 12582912, 12582912, 12582912, // 16: 1.5 · 2^23, its sum with a small number rounds that to an integer
  -1.5703125, -1.5703125, -1.5703125, -1.5703125, // 32: -π/2, its leading bits
  -0.00048375129699707031, -0.00048375129699707031, -0.00048375129699707031, -0.00048375129699707031, // 48
  -7.549789954891882e-8, -7.549789954891882e-8, -7.549789954891882e-8, -7.549789954891882e-8, // 64: and the rest
  -0.00019515296, -0.00019515296, -0.00019515296, -0.00019515296, // 80: sin
  0.0083321609, 0.0083321609, 0.0083321609, 0.0083321609, // 96
  -0.16666655, -0.16666655, -0.16666655, -0.16666655, // 112
  0.000024433157, 0.000024433157, 0.000024433157, 0.000024433157, // 128: cos
  -0.0013887316, -0.0013887316, -0.0013887316, -0.0013887316, // 144
  0.041666646, 0.041666646, 0.041666646, 0.041666646, // 160
  -0.5, -0.5, -0.5, -0.5, // 176
  1, 1, 1, 1, // 192
], 16);

/** sin(x + quarter·π/2) in each lane. */
// @ts-ignore: decorator
@inline function wave(x: v128, quarter: i32): v128 {
  const magic = v128.load(TRIG, 16);
  const shifted = f32x4.add(f32x4.mul(x, v128.load(TRIG)), magic);
  const n = f32x4.sub(shifted, magic);
  let r = fma(n, v128.load(TRIG, 32), x);
  r = fma(n, v128.load(TRIG, 48), r);
  r = fma(n, v128.load(TRIG, 64), r);
  const square = f32x4.mul(r, r);
  let s = fma(v128.load(TRIG, 80), square, v128.load(TRIG, 96));
  s = fma(s, square, v128.load(TRIG, 112));
  s = fma(f32x4.mul(s, square), r, r);
  let c = fma(v128.load(TRIG, 128), square, v128.load(TRIG, 144));
  c = fma(c, square, v128.load(TRIG, 160));
  c = fma(c, square, v128.load(TRIG, 176));
  c = fma(c, square, v128.load(TRIG, 192));
  const turns = i32x4.add(shifted, i32x4.splat(quarter));
  const odd = i32x4.eq(v128.and(turns, i32x4.splat(1)), i32x4.splat(1));
  const sign = i32x4.shl(v128.and(turns, i32x4.splat(2)), 30);
  return v128.xor(v128.bitselect(c, s, odd), sign);
}

/** sin in each lane, within 2 ulp of 1 for |x| <= 8,192; NaN at the infinities. */
// @ts-ignore: decorator
@inline export function sin4(x: v128): v128 {
  return wave(x, 0);
}

/** cos in each lane, within 2 ulp of 1 for |x| <= 8,192; NaN at the infinities. */
// @ts-ignore: decorator
@inline export function cos4(x: v128): v128 {
  return wave(x, 1);
}
