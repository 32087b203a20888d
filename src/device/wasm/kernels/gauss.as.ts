// The normal distribution function of four float32 lanes, and what gelu makes of it.
import { expNegative4 } from "./sigmoid.as";
import { fma } from "./simd.as";

// Φ(−a) = exp(−a²/2) t Q(t), t = 1 / (1 + 0.29 a): Q is a minimax polynomial of degree 7, relative error 2.2e-8 to
// a = 5.5 and 2.2e-5 beyond, where Φ is below 2e-8.
// prettier-ignore
const GAUSS = memory.data<f32>([
  1, 1, 1, 1, // 0
  0.29, 0.29, 0.29, 0.29, // 16
  0.5, 0.5, 0.5, 0.5, // 32
  0.03840150322354281, 0.03840150322354281, 0.03840150322354281, 0.03840150322354281, // 48: Q
  -0.18790184701740514, -0.18790184701740514, -0.18790184701740514, -0.18790184701740514, // 64
  0.29486778946368725, 0.29486778946368725, 0.29486778946368725, 0.29486778946368725, // 80
  -0.136835473303198, -0.136835473303198, -0.136835473303198, -0.136835473303198, // 96
  0.17450161550959686, 0.17450161550959686, 0.17450161550959686, 0.17450161550959686, // 112
  0.08226246336645693, 0.08226246336645693, 0.08226246336645693, 0.08226246336645693, // 128
  0.1192363834885839, 0.1192363834885839, 0.1192363834885839, 0.1192363834885839, // 144
  0.11546755429775928, 0.11546755429775928, 0.11546755429775928, 0.11546755429775928, // 160
  -13, -13, -13, -13, // 176: beyond, Φ is 0 or 1 to the last bit
  13, 13, 13, 13, // 192
  0.3989422804, 0.3989422804, 0.3989422804, 0.3989422804, // 208: 1 / √(2π)
  1.5957691216, 1.5957691216, 1.5957691216, 1.5957691216, // 224: 2 √(2/π), the scale inside the tanh form
  0.0713548162726, 0.0713548162726, 0.0713548162726, 0.0713548162726, // 240: and times 0.044715
  0.2140644488178, 0.2140644488178, 0.2140644488178, 0.2140644488178, // 256: 3 times that, its derivative
  -7, -7, -7, -7, // 272: beyond, the tanh form is 0 or x to the last bit
  7, 7, 7, 7, // 288
  0, 0, 0, 0, // 304
], 16);

/** t Q(t), so that Φ(−a) is exp(−a²/2) times it. */
// @ts-ignore: decorator
@inline function tail(a: v128): v128 {
  const one = v128.load(GAUSS);
  const t = f32x4.div(one, fma(a, v128.load(GAUSS, 16), one));
  let q = fma(v128.load(GAUSS, 48), t, v128.load(GAUSS, 64));
  q = fma(q, t, v128.load(GAUSS, 80));
  q = fma(q, t, v128.load(GAUSS, 96));
  q = fma(q, t, v128.load(GAUSS, 112));
  q = fma(q, t, v128.load(GAUSS, 128));
  q = fma(q, t, v128.load(GAUSS, 144));
  q = fma(q, t, v128.load(GAUSS, 160));
  return f32x4.mul(t, q);
}

/** exp(−x²/2). */
// @ts-ignore: decorator
@inline function bell(x: v128): v128 {
  return expNegative4(f32x4.mul(f32x4.mul(x, x), v128.load(GAUSS, 32)));
}

/** Φ(x) from the bell at x. */
// @ts-ignore: decorator
@inline function cumulative(x: v128, bellAtX: v128): v128 {
  const below = f32x4.mul(bellAtX, tail(f32x4.abs(x)));
  return v128.bitselect(f32x4.sub(v128.load(GAUSS), below), below, f32x4.gt(x, v128.load(GAUSS, 304)));
}

/** x Φ(x). */
// @ts-ignore: decorator
@inline export function gelu4(x: v128): v128 {
  const above = f32x4.pmax(x, v128.load(GAUSS, 176));
  const inside = f32x4.pmin(above, v128.load(GAUSS, 192));
  return f32x4.mul(above, cumulative(inside, bell(inside)));
}

/** Φ(x) + x φ(x). */
// @ts-ignore: decorator
@inline export function geluSlope4(x: v128): v128 {
  const clamped = f32x4.pmax(f32x4.pmin(x, v128.load(GAUSS, 192)), v128.load(GAUSS, 176));
  const b = bell(clamped);
  return fma(f32x4.mul(clamped, v128.load(GAUSS, 208)), b, cumulative(clamped, b));
}

/** Twice the argument of tanh: 2 √(2/π) (x + 0.044715 x³). */
// @ts-ignore: decorator
@inline function twice(x: v128): v128 {
  return f32x4.mul(x, fma(f32x4.mul(x, x), v128.load(GAUSS, 240), v128.load(GAUSS, 224)));
}

/** x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), as x over 1 + exp of twice that argument. */
// @ts-ignore: decorator
@inline export function geluTanh4(x: v128): v128 {
  const above = f32x4.pmax(x, v128.load(GAUSS, 272));
  const e = expNegative4(twice(f32x4.pmin(above, v128.load(GAUSS, 288))));
  return f32x4.div(above, f32x4.add(v128.load(GAUSS), e));
}

/** Its derivative: s + x s (1 − s) u′ with u twice the argument. */
// @ts-ignore: decorator
@inline export function geluTanhSlope4(x: v128): v128 {
  const one = v128.load(GAUSS);
  const inside = f32x4.pmax(f32x4.pmin(x, v128.load(GAUSS, 288)), v128.load(GAUSS, 272));
  const e = expNegative4(twice(inside));
  const s = f32x4.div(one, f32x4.add(one, e));
  const inner = f32x4.mul(inside, fma(f32x4.mul(inside, inside), v128.load(GAUSS, 256), v128.load(GAUSS, 224)));
  return f32x4.mul(s, fma(f32x4.mul(e, s), inner, one));
}
