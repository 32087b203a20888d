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

/** exp for x <= 0 that never falls below the smallest normal number. */
// @ts-ignore: decorator
@inline export function expFloored4(x: v128): v128 {
  const clamped = f32x4.pmax(x, v128.load(EXP, 16));
  const magic = v128.load(EXP, 48);
  const shifted = fma(clamped, v128.load(EXP, 32), magic);
  const n = f32x4.sub(shifted, magic);
  const r = fma(n, v128.load(EXP, 80), fma(n, v128.load(EXP, 64), clamped));
  let p = fma(v128.load(EXP, 96), r, v128.load(EXP, 112));
  p = fma(p, r, v128.load(EXP, 128));
  p = fma(p, r, v128.load(EXP, 144));
  p = fma(p, r, v128.load(EXP, 160));
  p = f32x4.add(fma(p, f32x4.mul(r, r), r), v128.load(EXP, 176));
  return i32x4.add(p, i32x4.shl(shifted, 23));
}

/** The bits of exp4 for x <= 0, with one comparison less. */
// @ts-ignore: decorator
@inline export function expBelow4(x: v128): v128 {
  return v128.andnot(expFloored4(x), f32x4.lt(x, v128.load(EXP, 16)));
}

/**
 * exp of eight lanes to memory, bit for bit what exp4 gives. Tier C computes the two halves as one 256-bit vector: they
 * must share every constant, their stores must be neighbours, and nothing may be loaded in between.
 */
// @ts-ignore: decorator
@inline export function storeExp8(to: usize, x0: v128, x1: v128): void {
  const high = v128.load_splat<f32>(EXP), low = v128.load_splat<f32>(EXP, 16);
  const c0 = f32x4.pmax(f32x4.pmin(x0, high), low), c1 = f32x4.pmax(f32x4.pmin(x1, high), low);
  const inverse = v128.load_splat<f32>(EXP, 32), magic = v128.load_splat<f32>(EXP, 48);
  const s0 = fma(c0, inverse, magic), s1 = fma(c1, inverse, magic);
  const n0 = f32x4.sub(s0, magic), n1 = f32x4.sub(s1, magic);
  const ln2 = v128.load_splat<f32>(EXP, 64), rest = v128.load_splat<f32>(EXP, 80);
  const r0 = fma(n0, rest, fma(n0, ln2, c0)), r1 = fma(n1, rest, fma(n1, ln2, c1));
  const k6 = v128.load_splat<f32>(EXP, 96), k5 = v128.load_splat<f32>(EXP, 112);
  let p0 = fma(k6, r0, k5), p1 = fma(k6, r1, k5);
  const k4 = v128.load_splat<f32>(EXP, 128);
  p0 = fma(p0, r0, k4), p1 = fma(p1, r1, k4);
  const k3 = v128.load_splat<f32>(EXP, 144);
  p0 = fma(p0, r0, k3), p1 = fma(p1, r1, k3);
  const k2 = v128.load_splat<f32>(EXP, 160), one = v128.load_splat<f32>(EXP, 176);
  p0 = fma(p0, r0, k2), p1 = fma(p1, r1, k2);
  p0 = f32x4.add(fma(p0, f32x4.mul(r0, r0), r0), one), p1 = f32x4.add(fma(p1, f32x4.mul(r1, r1), r1), one);
  p0 = i32x4.add(p0, i32x4.shl(s0, 23)), p1 = i32x4.add(p1, i32x4.shl(s1, 23));
  v128.store(to, v128.andnot(p0, f32x4.lt(x0, low)));
  v128.store(to, v128.andnot(p1, f32x4.lt(x1, low)), 16);
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
