import { log1, log4 } from "../../../device/wasm/kernels/log.as";
import { exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { logSigmoid4, sigmoid4 } from "../../../device/wasm/kernels/sigmoid.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Scratch of one row, each part of M numbers filled up to whole vectors: logits (−∞ behind the last), means, log scales,
// then logit + log-probability of each logistic.

// @ts-ignore: decorator
@inline function padded(M: i32): usize {
  return ((<usize>M + 3) & ~3) << 2;
}

function stage(x: usize, M: i32, scratch: usize): void {
  const size = padded(M);
  const bytes = (<usize>M) << 2;
  for (let i: usize = 0; i < size; i += 16) v128.store(scratch + i, f32x4.splat(-Infinity));
  memory.fill(scratch + size, 0, 2 * size);
  memory.copy(scratch, x, bytes);
  memory.copy(scratch + size, x + bytes, bytes);
  memory.copy(scratch + 2 * size, x + 2 * bytes, bytes);
}

// @ts-ignore: decorator
@inline function top4(x: v128): f32 {
  return max(
    max(f32x4.extract_lane(x, 0), f32x4.extract_lane(x, 1)),
    max(f32x4.extract_lane(x, 2), f32x4.extract_lane(x, 3)),
  );
}

// @ts-ignore: decorator
@inline function sum4(x: v128): f32 {
  return f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1) + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

function logSum(at: usize, size: usize): f32 {
  let most = v128.load(at);
  for (let i: usize = 16; i < size; i += 16) most = f32x4.max(most, v128.load(at + i));
  const top = top4(most);
  const shift = f32x4.splat(top);
  let sum = f32x4.splat(0);
  for (let i: usize = 0; i < size; i += 16) sum = f32x4.add(sum, exp4(f32x4.sub(v128.load(at + i), shift)));
  return top + log1(sum4(sum));
}

// logit + log(σ(a) − σ(b)) of four logistics, b and a the edges of the value's bin: the first and the last bin reach to
// infinity. floats: least log scale.
function joint(value: i32, least: f32, size: usize, scratch: usize): void {
  const x = f32x4.splat(<f32>value / <f32>127.5 - <f32>1);
  const half = f32x4.splat(<f32>1 / <f32>255);
  for (let i: usize = 0; i < size; i += 16) {
    const scale = f32x4.max(v128.load(scratch + 2 * size + i), f32x4.splat(least));
    const inverse = exp4(f32x4.neg(scale));
    const away = f32x4.sub(x, v128.load(scratch + size + i));
    let total = v128.load(scratch + i);
    if (value != 255) total = f32x4.add(total, logSigmoid4(f32x4.mul(f32x4.add(away, half), inverse)));
    if (value != 0) total = f32x4.add(total, logSigmoid4(f32x4.neg(f32x4.mul(f32x4.sub(away, half), inverse))));
    if (value != 0 && value != 255) {
      const width = f32x4.mul(f32x4.add(half, half), inverse);
      total = f32x4.add(total, log4(f32x4.neg(expm14(f32x4.neg(width)))));
    }
    v128.store(scratch + 3 * size + i, total);
  }
}

// parameters [N, 3M], values [N], nats [N]; ints: N, M, stride; floats: least log scale. One unit is 8 rows.
export function logisticMixture_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3), M = intAt(args, 4);
  const stride = (<usize>intAt(args, 5)) << 2;
  const least = floatAt(args, 6);
  const size = padded(M);
  const last = min(end << 3, n);
  for (let row = begin << 3; row < last; row++) {
    const at = (<usize>row) << 2;
    stage(pointerAt(args, 0) + <usize>row * stride, M, scratch);
    joint(load<i32>(pointerAt(args, 1) + at), least, size, scratch);
    store<f32>(pointerAt(args, 2) + at, logSum(scratch, size) - logSum(scratch + 3 * size, size));
  }
}

// The slopes of four logistics along mean and log scale, times −posterior·incoming, in place of means and log scales.
function slopes(value: i32, least: f32, incoming: f32, seen: f32, size: usize, scratch: usize): void {
  const x = f32x4.splat(<f32>value / <f32>127.5 - <f32>1);
  const half = f32x4.splat(<f32>1 / <f32>255);
  const zero = f32x4.splat(0);
  for (let i: usize = 0; i < size; i += 16) {
    const given = v128.load(scratch + 2 * size + i);
    const scale = f32x4.max(given, f32x4.splat(least));
    const inverse = exp4(f32x4.neg(scale));
    const away = f32x4.sub(x, v128.load(scratch + size + i));
    const a = f32x4.mul(f32x4.add(away, half), inverse);
    const b = f32x4.mul(f32x4.sub(away, half), inverse);
    const above = value == 255 ? zero : sigmoid4(f32x4.neg(a));
    const below = value == 0 ? zero : sigmoid4(b);
    let wide = f32x4.sub(f32x4.mul(b, below), f32x4.mul(a, above));
    if (value != 0 && value != 255) {
      const width = f32x4.mul(f32x4.add(half, half), inverse);
      wide = f32x4.sub(wide, f32x4.div(width, expm14(width)));
    }
    wide = v128.andnot(wide, f32x4.lt(given, f32x4.splat(least)));
    const posterior = exp4(f32x4.sub(v128.load(scratch + 3 * size + i), f32x4.splat(seen)));
    const factor = f32x4.mul(f32x4.splat(-incoming), posterior);
    v128.store(scratch + size + i, f32x4.mul(factor, f32x4.mul(inverse, f32x4.sub(below, above))));
    v128.store(scratch + 2 * size + i, f32x4.mul(factor, wide));
    v128.store(scratch + 3 * size + i, posterior);
  }
}

// parameters, values, dNats [N], dParameters [N, 3M]; ints: N, M, stride; floats: least log scale. One unit is 8 rows.
export function logisticMixture_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 4), M = intAt(args, 5);
  const stride = (<usize>intAt(args, 6)) << 2;
  const least = floatAt(args, 7);
  const size = padded(M);
  const bytes = (<usize>M) << 2;
  const last = min(end << 3, n);
  for (let row = begin << 3; row < last; row++) {
    const at = (<usize>row) << 2;
    const value = load<i32>(pointerAt(args, 1) + at);
    const incoming = load<f32>(pointerAt(args, 2) + at);
    stage(pointerAt(args, 0) + <usize>row * stride, M, scratch);
    joint(value, least, size, scratch);
    const all = f32x4.splat(logSum(scratch, size));
    slopes(value, least, incoming, logSum(scratch + 3 * size, size), size, scratch);
    for (let i: usize = 0; i < size; i += 16) {
      const prior = exp4(f32x4.sub(v128.load(scratch + i), all));
      const away = f32x4.sub(prior, v128.load(scratch + 3 * size + i));
      v128.store(scratch + i, f32x4.mul(f32x4.splat(incoming), away));
    }
    const to = pointerAt(args, 3) + <usize>row * 3 * bytes;
    memory.copy(to, scratch, bytes);
    memory.copy(to + bytes, scratch + size, bytes);
    memory.copy(to + 2 * bytes, scratch + 2 * size, bytes);
  }
}
