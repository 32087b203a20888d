// Elementary functions of four float32 lanes. A lane's result depends on nothing but that lane.
import { fma } from "./simd.as";

// exp(x) = 2^n (1 + r + r² p(r)), n = round(x / ln 2), |r| <= ln 2 / 2; p is a minimax polynomial of degree 4 fitted
// for relative error (3e-9, far below the rounding of float32). Every constant fills four lanes: a load is cheaper
// than a literal that V8 rebuilds.
// prettier-ignore
const EXP = memory.data<f32>([
  88.72283, 88.72283, 88.72283, 88.72283, // 0: ln of the largest float32
  -87.33654, -87.33654, -87.33654, -87.33654, // 16: ln of the smallest normal float32
  1.44269504, 1.44269504, 1.44269504, 1.44269504, // 32: 1 / ln 2
  12582912, 12582912, 12582912, 12582912, // 48: 1.5 · 2^23, its sum with a small number rounds that to an integer
  -0.693359375, -0.693359375, -0.693359375, -0.693359375, // 64: -ln 2, its leading 9 bits
  0.00021219444, 0.00021219444, 0.00021219444, 0.00021219444, // 80: and the rest
  0.001381454, 0.001381454, 0.001381454, 0.001381454, // 96: p
  0.0083687454, 0.0083687454, 0.0083687454, 0.0083687454, // 112
  0.041668389, 0.041668389, 0.041668389, 0.041668389, // 128
  0.16666521, 0.16666521, 0.16666521, 0.16666521, // 144
  0.49999994, 0.49999994, 0.49999994, 0.49999994, // 160
  1, 1, 1, 1, // 176
  -17.5, -17.5, -17.5, -17.5, // 192: below, expm1 is -1
  88.3762, 88.3762, 88.3762, 88.3762, // 208: the largest x whose 2^n is finite
], 16);

/**
 * exp in each lane, within 1 ulp. Below -87.33 (results that would be subnormal) and at -Infinity it is 0; above 88.72
 * it stays at the largest finite values instead of overflowing; NaN stays NaN.
 */
// @ts-ignore: decorator
@inline export function exp4(x: v128): v128 {
  const low = v128.load(EXP, 16);
  const clamped = f32x4.pmax(f32x4.pmin(x, v128.load(EXP)), low);
  const magic = v128.load(EXP, 48);
  const shifted = fma(clamped, v128.load(EXP, 32), magic);
  const n = f32x4.sub(shifted, magic);
  const r = fma(n, v128.load(EXP, 80), fma(n, v128.load(EXP, 64), clamped));
  let p = fma(v128.load(EXP, 96), r, v128.load(EXP, 112));
  p = fma(p, r, v128.load(EXP, 128));
  p = fma(p, r, v128.load(EXP, 144));
  p = fma(p, r, v128.load(EXP, 160));
  p = f32x4.add(fma(p, f32x4.mul(r, r), r), v128.load(EXP, 176));
  return v128.andnot(i32x4.add(p, i32x4.shl(shifted, 23)), f32x4.lt(x, low));
}

/** The bits of exp4 for x <= 0, with one comparison less. */
// @ts-ignore: decorator
@inline export function expBelow4(x: v128): v128 {
  const low = v128.load(EXP, 16);
  const clamped = f32x4.pmax(x, low);
  const magic = v128.load(EXP, 48);
  const shifted = fma(clamped, v128.load(EXP, 32), magic);
  const n = f32x4.sub(shifted, magic);
  const r = fma(n, v128.load(EXP, 80), fma(n, v128.load(EXP, 64), clamped));
  let p = fma(v128.load(EXP, 96), r, v128.load(EXP, 112));
  p = fma(p, r, v128.load(EXP, 128));
  p = fma(p, r, v128.load(EXP, 144));
  p = fma(p, r, v128.load(EXP, 160));
  p = f32x4.add(fma(p, f32x4.mul(r, r), r), v128.load(EXP, 176));
  return v128.andnot(i32x4.add(p, i32x4.shl(shifted, 23)), f32x4.lt(x, low));
}

/** exp(x) − 1 in each lane, relatively accurate (2 ulp) near 0 too; −1 below −17.5; NaN stays NaN. */
// @ts-ignore: decorator
@inline export function expm14(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.pmin(x, v128.load(EXP, 208)), v128.load(EXP, 192));
  const magic = v128.load(EXP, 48);
  const shifted = fma(clamped, v128.load(EXP, 32), magic);
  const n = f32x4.sub(shifted, magic);
  const r = fma(n, v128.load(EXP, 80), fma(n, v128.load(EXP, 64), clamped));
  let p = fma(v128.load(EXP, 96), r, v128.load(EXP, 112));
  p = fma(p, r, v128.load(EXP, 128));
  p = fma(p, r, v128.load(EXP, 144));
  p = fma(p, r, v128.load(EXP, 160));
  p = fma(p, f32x4.mul(r, r), r);
  const one = v128.load(EXP, 176);
  const power = i32x4.add(one, i32x4.shl(shifted, 23));
  return fma(p, power, f32x4.sub(power, one));
}

/** exp of one number, the same bits as a lane of exp4. */
// @ts-ignore: decorator
@inline export function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

/** exp(x) − 1 of one number, the same bits as a lane of expm14. */
// @ts-ignore: decorator
@inline export function expm11(x: f32): f32 {
  return f32x4.extract_lane(expm14(f32x4.splat(x)), 0);
}
