import { exp1, exp4, expBelow4 } from "../../../device/wasm/kernels/math.as";
import { maxRun } from "../../../device/wasm/kernels/rows.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** Σ exp(x − shift) of n floats: 64 terms at a time in float32, these sums in float64, for a vocabulary may be large. */
function expSum(x: usize, n: i32, shift: f32): f64 {
  const wide = f32x4.splat(shift);
  let low = f64x2.splat(0), high = low;
  while (n >= 8) {
    let a = f32x4.splat(0), b = a;
    const until = n - min(64, n & ~7);
    for (; n > until; n -= 8) {
      a = f32x4.add(a, expBelow4(f32x4.sub(v128.load(x), wide)));
      b = f32x4.add(b, expBelow4(f32x4.sub(v128.load(x, 16), wide)));
      x += 32;
    }
    a = f32x4.add(a, b);
    low = f64x2.add(low, f64x2.promote_low_f32x4(a));
    high = f64x2.add(high, f64x2.promote_low_f32x4(v128.shuffle<f32>(a, a, 2, 3, 2, 3)));
  }
  low = f64x2.add(low, high);
  let total = f64x2.extract_lane(low, 0) + f64x2.extract_lane(low, 1);
  for (; n > 0; n--) {
    total += <f64>exp1(load<f32>(x) - shift);
    x += 4;
  }
  return total;
}

/** The sum of n floats in float64. */
function plainSum(x: usize, n: i32): f64 {
  let total: f64 = 0;
  for (let i = 0; i < n; i++) total += <f64>load<f32>(x + ((<usize>i) << 2));
  return total;
}

// logits [N, vocabulary], targets [N], label weights [vocabulary], losses [N], log-sum-exps [N], weights [N].
// ints: N, vocabulary, stride of the logits, ignored index, has label weights; floats: smoothing. One unit is 8 rows.
export function crossEntropy_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 6), vocabulary = intAt(args, 7), ignored = intAt(args, 9);
  const stride = <usize>intAt(args, 8) << 2;
  const labels = intAt(args, 10) != 0 ? pointerAt(args, 2) : 0;
  const smoothing = <f64>floatAt(args, 11);
  const last = min(end << 3, n);
  for (let row = begin << 3; row < last; row++) {
    const at = (<usize>row) << 2;
    const losses = pointerAt(args, 3) + at, logSums = pointerAt(args, 4) + at, weights = pointerAt(args, 5) + at;
    const x = pointerAt(args, 0) + <usize>row * stride;
    const target = load<i32>(pointerAt(args, 1) + at);
    if (target == ignored) {
      store<f32>(losses, 0);
      store<f32>(logSums, 0);
      store<f32>(weights, 0);
      continue;
    }
    const top = maxRun(x, vocabulary);
    const logSum = <f64>top + Math.log(expSum(x, vocabulary, top));
    let loss = logSum - <f64>load<f32>(x + ((<usize>target) << 2));
    if (smoothing != 0) {
      const mean = plainSum(x, vocabulary) / <f64>vocabulary;
      loss = (1 - smoothing) * loss + smoothing * (logSum - mean);
    }
    const weight = labels != 0 ? load<f32>(labels + ((<usize>target) << 2)) : <f32>1;
    store<f32>(losses, <f32>(loss * <f64>weight));
    store<f32>(logSums, <f32>logSum);
    store<f32>(weights, weight);
  }
}

// losses, weights, result [2] = loss, divisor; ints: N, mean. One unit.
export function crossEntropy_sum_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 3);
  let loss: f64 = 0;
  let weight: f64 = 0;
  for (let i = 0; i < n; i++) {
    loss += <f64>load<f32>(pointerAt(args, 0) + ((<usize>i) << 2));
    weight += <f64>load<f32>(pointerAt(args, 1) + ((<usize>i) << 2));
  }
  const divisor = intAt(args, 4) != 0 ? weight : 1;
  store<f32>(pointerAt(args, 2), divisor == 0 ? 0 : <f32>(loss / divisor));
  store<f32>(pointerAt(args, 2), <f32>divisor, 4);
}

// logits, targets, log-sum-exps, weights, result, dLoss, dLogits; ints: N, vocabulary, stride; floats: smoothing.
export function crossEntropy_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 7);
  const vocabulary = intAt(args, 8);
  const stride = <usize>intAt(args, 9) << 2;
  const smoothing = floatAt(args, 10);
  const width = (<usize>vocabulary) << 2;
  const divisor = load<f32>(pointerAt(args, 4), 4);
  const incoming = load<f32>(pointerAt(args, 5));
  const even = f32x4.splat(smoothing / <f32>vocabulary);
  const last = min(end << 3, n);
  for (let row = begin << 3; row < last; row++) {
    const at = (<usize>row) << 2;
    const x = pointerAt(args, 0) + <usize>row * stride;
    const dx = pointerAt(args, 6) + <usize>row * width;
    const weight = load<f32>(pointerAt(args, 3) + at);
    if (weight == 0 || divisor == 0) {
      memory.fill(dx, 0, width);
      continue;
    }
    const factor = (incoming * weight) / divisor;
    const wide = f32x4.splat(factor);
    const shift = f32x4.splat(load<f32>(pointerAt(args, 2) + at));
    let i: usize = 0;
    for (; i + 16 <= width; i += 16) {
      const p = exp4(f32x4.sub(v128.load(x + i), shift));
      v128.store(dx + i, f32x4.mul(f32x4.sub(p, even), wide));
    }
    for (; i < width; i += 4) {
      const p = exp4(f32x4.sub(v128.load32_zero(x + i), shift));
      v128.store32_lane(dx + i, f32x4.mul(f32x4.sub(p, even), wide), 0);
    }
    const target = dx + ((<usize>load<i32>(pointerAt(args, 1) + at)) << 2);
    store<f32>(target, load<f32>(target) - (<f32>1 - smoothing) * factor);
  }
}
