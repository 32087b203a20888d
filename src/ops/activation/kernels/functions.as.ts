// Value and slope of each function of the family for four lanes. A slope is given the kept tensor: x, or y = value(x).
import { exp4 } from "../../../device/wasm/kernels/math.as";
import { sigmoid4 } from "../../../device/wasm/kernels/sigmoid.as";
import { cos4, sin4 } from "../../../device/wasm/kernels/trig.as";

export { silu4 as siluValue, siluSlope4 as siluSlope, sigmoid4 as sigmoidValue, softplus4 as softplusValue, tanh4 as tanhValue, logSigmoid4 as logSigmoidValue } from "../../../device/wasm/kernels/sigmoid.as";
export { gelu4 as geluValue, geluSlope4 as geluSlope, geluTanh4 as geluTanhValue, geluTanhSlope4 as geluTanhSlope } from "../../../device/wasm/kernels/gauss.as";
export { log4 as logValue } from "../../../device/wasm/kernels/log.as";
export { cos4 as cosValue, sin4 as sinValue } from "../../../device/wasm/kernels/trig.as";

// prettier-ignore
const CONSTANTS = memory.data<f32>([
  1, 1, 1, 1, // 0
  0.5, 0.5, 0.5, 0.5, // 16
  88.72283, 88.72283, 88.72283, 88.72283, // 32: ln of the largest float32
  Infinity, Infinity, Infinity, Infinity, // 48
], 16);

// @ts-ignore: decorator
@inline export function reluValue(x: v128): v128 {
  return f32x4.pmax(x, f32x4.splat(0));
}

// @ts-ignore: decorator
@inline export function reluSlope(y: v128): v128 {
  return v128.and(v128.load(CONSTANTS), f32x4.gt(y, f32x4.splat(0)));
}

// @ts-ignore: decorator
@inline export function sigmoidSlope(y: v128): v128 {
  return f32x4.mul(y, f32x4.sub(v128.load(CONSTANTS), y));
}

// @ts-ignore: decorator
@inline export function softplusSlope(x: v128): v128 {
  return sigmoid4(x);
}

// @ts-ignore: decorator
@inline export function tanhSlope(y: v128): v128 {
  return f32x4.sub(v128.load(CONSTANTS), f32x4.mul(y, y));
}

/** exp that overflows to Infinity, as everywhere. */
// @ts-ignore: decorator
@inline export function expValue(x: v128): v128 {
  return f32x4.add(exp4(x), v128.and(v128.load(CONSTANTS, 48), f32x4.gt(x, v128.load(CONSTANTS, 32))));
}

// @ts-ignore: decorator
@inline export function expSlope(y: v128): v128 {
  return y;
}

// @ts-ignore: decorator
@inline export function logSlope(x: v128): v128 {
  return f32x4.div(v128.load(CONSTANTS), x);
}

// @ts-ignore: decorator
@inline export function sqrtValue(x: v128): v128 {
  return f32x4.sqrt(x);
}

// @ts-ignore: decorator
@inline export function sqrtSlope(y: v128): v128 {
  return f32x4.div(v128.load(CONSTANTS, 16), y);
}

// @ts-ignore: decorator
@inline export function squareValue(x: v128): v128 {
  return f32x4.mul(x, x);
}

// @ts-ignore: decorator
@inline export function squareSlope(x: v128): v128 {
  return f32x4.add(x, x);
}

// @ts-ignore: decorator
@inline export function logSigmoidSlope(x: v128): v128 {
  return sigmoid4(f32x4.neg(x));
}

// @ts-ignore: decorator
@inline export function eluPlusOneValue(x: v128): v128 {
  return v128.bitselect(f32x4.add(x, v128.load(CONSTANTS)), exp4(x), f32x4.gt(x, f32x4.splat(0)));
}

// @ts-ignore: decorator
@inline export function eluPlusOneSlope(y: v128): v128 {
  return f32x4.pmin(y, v128.load(CONSTANTS));
}

// @ts-ignore: decorator
@inline export function sinSlope(x: v128): v128 {
  return cos4(x);
}

// @ts-ignore: decorator
@inline export function cosSlope(x: v128): v128 {
  return f32x4.neg(sin4(x));
}
