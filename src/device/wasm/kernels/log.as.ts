// Natural logarithms of four float32 lanes. A lane's result depends on nothing but that lane.
import { fma } from "./simd.as";

// log(m) = f - f²/2 + f³ p(f), f = m - 1, m in [√½, √2): p is a minimax polynomial of degree 7 fitted for the relative
// error of the whole (6e-9). log1p(u) = u q(u) on [0, 1]: q of degree 9, relative error 5e-9.
// prettier-ignore
const LOG = memory.data<f32>([
  1.1754944e-38, 1.1754944e-38, 1.1754944e-38, 1.1754944e-38, // 0: the smallest normal float32
  8388608, 8388608, 8388608, 8388608, // 16: 2^23
  0.70710677, 0.70710677, 0.70710677, 0.70710677, // 32: √½
  1, 1, 1, 1, // 48
  0.693359375, 0.693359375, 0.693359375, 0.693359375, // 64: ln 2, its leading 9 bits
  -0.00021219444, -0.00021219444, -0.00021219444, -0.00021219444, // 80: and the rest
  -0.5, -0.5, -0.5, -0.5, // 96
  -0.0763449775981263, -0.0763449775981263, -0.0763449775981263, -0.0763449775981263, // 112: p
  0.12761577537028576, 0.12761577537028576, 0.12761577537028576, 0.12761577537028576, // 128
  -0.13160182161348133, -0.13160182161348133, -0.13160182161348133, -0.13160182161348133, // 144
  0.14201757916718138, 0.14201757916718138, 0.14201757916718138, 0.14201757916718138, // 160
  -0.16623357359750998, -0.16623357359750998, -0.16623357359750998, -0.16623357359750998, // 176
  0.20001226880231315, 0.20001226880231315, 0.20001226880231315, 0.20001226880231315, // 192
  -0.25000821033939574, -0.25000821033939574, -0.25000821033939574, -0.25000821033939574, // 208
  0.3333333170766321, 0.3333333170766321, 0.3333333170766321, 0.3333333170766321, // 224
  -0.003244024131375575, -0.003244024131375575, -0.003244024131375575, -0.003244024131375575, // 240: q
  0.019851457643383377, 0.019851457643383377, 0.019851457643383377, 0.019851457643383377, // 256
  -0.056959525383262585, -0.056959525383262585, -0.056959525383262585, -0.056959525383262585, // 272
  0.1060365398288515, 0.1060365398288515, 0.1060365398288515, 0.1060365398288515, // 288
  -0.15305592037692206, -0.15305592037692206, -0.15305592037692206, -0.15305592037692206, // 304
  0.19675939071739124, 0.19675939071739124, 0.19675939071739124, 0.19675939071739124, // 320
  -0.24954133619621915, -0.24954133619621915, -0.24954133619621915, -0.24954133619621915, // 336
  0.3332996241306695, 0.3332996241306695, 0.3332996241306695, 0.3332996241306695, // 352
  -0.49999902422642656, -0.49999902422642656, -0.49999902422642656, -0.49999902422642656, // 368
  3.4028235e38, 3.4028235e38, 3.4028235e38, 3.4028235e38, // 384: the largest float32
], 16);

/** log in each lane, within 1 ulp, subnormal arguments too; −Infinity at 0, NaN below 0, Infinity and NaN unchanged. */
// @ts-ignore: decorator
@inline export function log4(x: v128): v128 {
  const normal = f32x4.pmin(f32x4.pmax(x, v128.load(LOG)), v128.load(LOG, 384));
  const value = logNormal(normal);
  if (v128.any_true(f32x4.ne(normal, x))) return logSpecial(x, value);
  return value;
}

/** log of normal positive numbers. */
// @ts-ignore: decorator
@inline function logNormal(x: v128): v128 {
  const exponent = i32x4.shr_s(i32x4.sub(x, v128.load(LOG, 32)), 23);
  const f = f32x4.sub(i32x4.sub(x, i32x4.shl(exponent, 23)), v128.load(LOG, 48));
  const n = f32x4.convert_i32x4_s(exponent);
  const square = f32x4.mul(f, f);
  let p = fma(v128.load(LOG, 112), f, v128.load(LOG, 128));
  p = fma(p, f, v128.load(LOG, 144));
  p = fma(p, f, v128.load(LOG, 160));
  p = fma(p, f, v128.load(LOG, 176));
  p = fma(p, f, v128.load(LOG, 192));
  p = fma(p, f, v128.load(LOG, 208));
  p = fma(p, f, v128.load(LOG, 224));
  p = fma(f32x4.mul(square, f), p, f32x4.mul(n, v128.load(LOG, 80)));
  p = f32x4.add(fma(square, v128.load(LOG, 96), p), f);
  return fma(n, v128.load(LOG, 64), p);
}

/** Lanes that are subnormal, 0, negative, infinite or NaN; the others keep their value. */
export function logSpecial(x: v128, value: v128): v128 {
  const zero = f32x4.splat(0);
  const scaled = f32x4.mul(x, v128.load(LOG, 16));
  const small = f32x4.sub(logNormal(scaled), f32x4.splat(15.942385));
  const below = v128.bitselect(f32x4.splat(-Infinity), f32x4.splat(NaN), f32x4.eq(x, zero));
  const positive = v128.bitselect(small, value, f32x4.lt(x, v128.load(LOG)));
  const finite = v128.bitselect(x, positive, f32x4.gt(x, v128.load(LOG, 384)));
  return v128.bitselect(finite, below, f32x4.gt(x, zero));
}

/** log(1 + u) in each lane for u in [0, 1], relatively accurate near 0 (1 ulp); NaN stays NaN. */
// @ts-ignore: decorator
@inline export function log1pUnit4(u: v128): v128 {
  let q = fma(v128.load(LOG, 240), u, v128.load(LOG, 256));
  q = fma(q, u, v128.load(LOG, 272));
  q = fma(q, u, v128.load(LOG, 288));
  q = fma(q, u, v128.load(LOG, 304));
  q = fma(q, u, v128.load(LOG, 320));
  q = fma(q, u, v128.load(LOG, 336));
  q = fma(q, u, v128.load(LOG, 352));
  q = fma(q, u, v128.load(LOG, 368));
  return fma(f32x4.mul(u, u), q, u);
}

/** log of one number, the same bits as a lane of log4. */
// @ts-ignore: decorator
@inline export function log1(x: f32): f32 {
  return f32x4.extract_lane(log4(f32x4.splat(x)), 0);
}
