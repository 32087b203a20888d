// Logistic functions of four float32 lanes, safe at every argument: no infinity times zero, NaN stays NaN.
import { expm14 } from "./math.as";
import { log1pUnit4 } from "./log.as";
import { fma } from "./simd.as";

// exp(−x) as exp of math.as.ts has it, the signs of odd powers turned and Horner's rule to the end.
// prettier-ignore
const SIGMOID = memory.data<f32>([
  -1.44269504, -1.44269504, -1.44269504, -1.44269504, // 0: −1 / ln 2
  12582912, 12582912, 12582912, 12582912, // 16: 1.5 · 2^23
  0.693359375, 0.693359375, 0.693359375, 0.693359375, // 32: ln 2, its leading 9 bits
  -0.00021219444, -0.00021219444, -0.00021219444, -0.00021219444, // 48: and the rest
  0.001381454, 0.001381454, 0.001381454, 0.001381454, // 64: p
  -0.0083687454, -0.0083687454, -0.0083687454, -0.0083687454, // 80
  0.041668389, 0.041668389, 0.041668389, 0.041668389, // 96
  -0.16666521, -0.16666521, -0.16666521, -0.16666521, // 112
  0.49999994, 0.49999994, 0.49999994, 0.49999994, // 128
  1, 1, 1, 1, // 144
  2, 2, 2, 2, // 160
  87, 87, 87, 87, // 176: beyond, sigmoid is 0 or 1 to the last bit
  -87, -87, -87, -87, // 192
  0, 0, 0, 0, // 208
  -1, -1, -1, -1, // 224
  0.6931472, 0.6931472, 0.6931472, 0.6931472, // 240: ln 2 within 2e-9
], 16);

/**
 * exp(−x) in each lane for −88.7 <= x <= 87.3; NaN stays NaN. Within 1 ulp to |x| = 20, 2e-7 at 87 where a
 * multiply-add rounds once and ln 2 is one number.
 */
// @ts-ignore: decorator
@inline export function expNegative4(x: v128): v128 {
  const magic = v128.load(SIGMOID, 16);
  const shifted = fma(x, v128.load(SIGMOID), magic);
  const n = f32x4.sub(shifted, magic);
  const r = TIER > 0 ? fma(n, v128.load(SIGMOID, 240), x) : fma(n, v128.load(SIGMOID, 48), fma(n, v128.load(SIGMOID, 32), x));
  let p = fma(v128.load(SIGMOID, 64), r, v128.load(SIGMOID, 80));
  p = fma(p, r, v128.load(SIGMOID, 96));
  p = fma(p, r, v128.load(SIGMOID, 112));
  p = fma(p, r, v128.load(SIGMOID, 128));
  p = fma(p, r, v128.load(SIGMOID, 224));
  p = fma(p, r, v128.load(SIGMOID, 144));
  return i32x4.add(p, i32x4.shl(shifted, 23));
}

/** x between −87 and 87. */
// @ts-ignore: decorator
@inline function bounded(x: v128): v128 {
  return f32x4.pmax(f32x4.pmin(x, v128.load(SIGMOID, 176)), v128.load(SIGMOID, 192));
}

/** 1 / (1 + exp(−x)); at −Infinity 1e-38. */
// @ts-ignore: decorator
@inline export function sigmoid4(x: v128): v128 {
  const one = v128.load(SIGMOID, 144);
  return f32x4.div(one, f32x4.add(one, expNegative4(bounded(x))));
}

/** expm1(2x) / (expm1(2x) + 2), relatively accurate near 0. */
// @ts-ignore: decorator
@inline export function tanh4(x: v128): v128 {
  const e = expm14(f32x4.add(x, x));
  return f32x4.div(e, f32x4.add(e, v128.load(SIGMOID, 160)));
}

/** log1p(exp(−|x|)), what softplus(x) is above max(x, 0); 1e-38 at the infinities. */
// @ts-ignore: decorator
@inline export function softplusRest4(x: v128): v128 {
  return log1pUnit4(expNegative4(f32x4.pmin(f32x4.abs(x), v128.load(SIGMOID, 176))));
}

/** log(1 + exp(x)) = max(x, 0) + log1p(exp(−|x|)). */
// @ts-ignore: decorator
@inline export function softplus4(x: v128): v128 {
  return f32x4.add(f32x4.pmax(x, v128.load(SIGMOID, 208)), softplusRest4(x));
}

/** log(sigmoid(x)) = min(x, 0) − log1p(exp(−|x|)). */
// @ts-ignore: decorator
@inline export function logSigmoid4(x: v128): v128 {
  return f32x4.sub(f32x4.pmin(x, v128.load(SIGMOID, 208)), softplusRest4(x));
}
