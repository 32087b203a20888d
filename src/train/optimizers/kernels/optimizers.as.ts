import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Every rule: control, parameter, gradient, then its slots; ints: n; floats by rule. One unit is 4,096 elements.
// control = [scale of the gradient, 1 where the step is sound or 0 where it must not happen].

// @ts-ignore: decorator
@inline function isSkipped(args: usize): bool {
  return load<f32>(pointerAt(args, 0), 4) == 0;
}

// floats: learning rate, beta1, beta2, eps, weight decay, 1/(1-beta1^t), sqrt(1-beta2^t), factor, rectified, coupled decay.
// g <- g + coupled p, then the moments of g and
// p <- p (1 - lr wd) - lr factor mHat / (sqrt(vHat) + eps), or - lr mHat where the variance is not yet to be trusted.
export function optimizer_adam_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  if (isSkipped(args)) return;
  const gradientScale = f32x4.splat(load<f32>(pointerAt(args, 0)));
  const n = intAt(args, 5);
  const rate = floatAt(args, 6);
  const beta1 = f32x4.splat(floatAt(args, 7));
  const beta2 = f32x4.splat(floatAt(args, 8));
  const rest1 = f32x4.splat(1 - floatAt(args, 7));
  const rest2 = f32x4.splat(1 - floatAt(args, 8));
  const eps = f32x4.splat(floatAt(args, 9));
  const keep = f32x4.splat(1 - rate * floatAt(args, 10));
  const moment = f32x4.splat(rate * floatAt(args, 11) * floatAt(args, 13));
  const spread = f32x4.splat(1 / floatAt(args, 12));
  const rectified = floatAt(args, 14) != 0;
  const coupled = f32x4.splat(floatAt(args, 15));
  const from = (<usize>(begin << 12)) << 2;
  const to = (<usize>min(end << 12, n)) << 2;
  const p = pointerAt(args, 1);
  const g = pointerAt(args, 2);
  const m = pointerAt(args, 3);
  const v = pointerAt(args, 4);
  let at = from;
  for (; at + 16 <= to; at += 16) {
    const old = v128.load(p + at);
    const grad = f32x4.add(f32x4.mul(v128.load(g + at), gradientScale), f32x4.mul(old, coupled));
    const mean = f32x4.add(f32x4.mul(v128.load(m + at), beta1), f32x4.mul(grad, rest1));
    const square = f32x4.add(f32x4.mul(v128.load(v + at), beta2), f32x4.mul(f32x4.mul(grad, grad), rest2));
    v128.store(m + at, mean);
    v128.store(v + at, square);
    let step = f32x4.mul(mean, moment);
    if (rectified) step = f32x4.div(step, f32x4.add(f32x4.mul(f32x4.sqrt(square), spread), eps));
    v128.store(p + at, f32x4.sub(f32x4.mul(old, keep), step));
  }
  for (; at < to; at += 4) {
    const old = v128.load32_zero(p + at);
    const grad = f32x4.add(f32x4.mul(v128.load32_zero(g + at), gradientScale), f32x4.mul(old, coupled));
    const mean = f32x4.add(f32x4.mul(v128.load32_zero(m + at), beta1), f32x4.mul(grad, rest1));
    const square = f32x4.add(f32x4.mul(v128.load32_zero(v + at), beta2), f32x4.mul(f32x4.mul(grad, grad), rest2));
    v128.store32_lane(m + at, mean, 0);
    v128.store32_lane(v + at, square, 0);
    let step = f32x4.mul(mean, moment);
    if (rectified) step = f32x4.div(step, f32x4.add(f32x4.mul(f32x4.sqrt(square), spread), eps));
    v128.store32_lane(p + at, f32x4.sub(f32x4.mul(old, keep), step), 0);
  }
}

// floats: learning rate, momentum, weight decay. m <- momentum m + g; p <- p (1 - lr wd) - lr m.
export function optimizer_sgd_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  if (isSkipped(args)) return;
  const scale = f32x4.splat(load<f32>(pointerAt(args, 0)));
  const rate = f32x4.splat(floatAt(args, 5));
  const momentum = f32x4.splat(floatAt(args, 6));
  const keep = f32x4.splat(<f32>1 - floatAt(args, 5) * floatAt(args, 7));
  const p = pointerAt(args, 1);
  const g = pointerAt(args, 2);
  const m = pointerAt(args, 3);
  let at = (<usize>(begin << 12)) << 2;
  const to = (<usize>min(end << 12, intAt(args, 4))) << 2;
  for (; at + 16 <= to; at += 16) {
    const mean = f32x4.add(f32x4.mul(v128.load(m + at), momentum), f32x4.mul(v128.load(g + at), scale));
    v128.store(m + at, mean);
    v128.store(p + at, f32x4.sub(f32x4.mul(v128.load(p + at), keep), f32x4.mul(mean, rate)));
  }
  for (; at < to; at += 4) {
    const mean = f32x4.add(f32x4.mul(v128.load32_zero(m + at), momentum), f32x4.mul(v128.load32_zero(g + at), scale));
    v128.store32_lane(m + at, mean, 0);
    v128.store32_lane(p + at, f32x4.sub(f32x4.mul(v128.load32_zero(p + at), keep), f32x4.mul(mean, rate)), 0);
  }
}

// floats: learning rate, beta1, beta2, weight decay.
// p <- p (1 - lr wd) - lr sign(beta1 m + (1-beta1) g); m <- beta2 m + (1-beta2) g.
export function optimizer_lion_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  if (isSkipped(args)) return;
  const scale = f32x4.splat(load<f32>(pointerAt(args, 0)));
  const rate = floatAt(args, 5);
  const beta1 = f32x4.splat(floatAt(args, 6)), rest1 = f32x4.splat(1 - floatAt(args, 6));
  const beta2 = f32x4.splat(floatAt(args, 7)), rest2 = f32x4.splat(1 - floatAt(args, 7));
  const keep = f32x4.splat(<f32>1 - rate * floatAt(args, 8));
  const up = f32x4.splat(rate), zero = f32x4.splat(0);
  const p = pointerAt(args, 1);
  const g = pointerAt(args, 2);
  const m = pointerAt(args, 3);
  let at = (<usize>(begin << 12)) << 2;
  const to = (<usize>min(end << 12, intAt(args, 4))) << 2;
  for (; at + 16 <= to; at += 16) {
    const grad = f32x4.mul(v128.load(g + at), scale), mean = v128.load(m + at);
    const mixed = f32x4.add(f32x4.mul(mean, beta1), f32x4.mul(grad, rest1));
    const step = f32x4.sub(v128.and(f32x4.gt(mixed, zero), up), v128.and(f32x4.lt(mixed, zero), up));
    v128.store(p + at, f32x4.sub(f32x4.mul(v128.load(p + at), keep), step));
    v128.store(m + at, f32x4.add(f32x4.mul(mean, beta2), f32x4.mul(grad, rest2)));
  }
  for (; at < to; at += 4) {
    const grad = f32x4.mul(v128.load32_zero(g + at), scale), mean = v128.load32_zero(m + at);
    const mixed = f32x4.add(f32x4.mul(mean, beta1), f32x4.mul(grad, rest1));
    const step = f32x4.sub(v128.and(f32x4.gt(mixed, zero), up), v128.and(f32x4.lt(mixed, zero), up));
    v128.store32_lane(p + at, f32x4.sub(f32x4.mul(v128.load32_zero(p + at), keep), step), 0);
    v128.store32_lane(m + at, f32x4.add(f32x4.mul(mean, beta2), f32x4.mul(grad, rest2)), 0);
  }
}

// value, average; ints: n; floats: decay. average <- decay average + (1 - decay) value.
export function optimizer_average_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const value = pointerAt(args, 0);
  const average = pointerAt(args, 1);
  const share = f32x4.splat(1 - floatAt(args, 3));
  let at = (<usize>(begin << 12)) << 2;
  const to = (<usize>min(end << 12, intAt(args, 2))) << 2;
  for (; at + 16 <= to; at += 16) {
    const before = v128.load(average + at);
    v128.store(average + at, f32x4.add(before, f32x4.mul(share, f32x4.sub(v128.load(value + at), before))));
  }
  for (; at < to; at += 4) {
    const before = v128.load32_zero(average + at);
    v128.store32_lane(average + at, f32x4.add(before, f32x4.mul(share, f32x4.sub(v128.load32_zero(value + at), before))), 0);
  }
}

// gradient, partials; ints: n, first partial. Unit i is 4,096 elements: their sum of squares becomes one partial, in float64 so
// that neither overflow nor order shows.
export function gradientNorm_partial_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const g = pointerAt(args, 0);
  const partials = pointerAt(args, 1);
  const n = intAt(args, 2);
  const first = intAt(args, 3);
  for (let unit = begin; unit < end; unit++) {
    const to = min((unit + 1) << 12, n);
    let low = f64x2.splat(0);
    let high = f64x2.splat(0);
    let i = unit << 12;
    for (; i + 4 <= to; i += 4) {
      const x = v128.load(g + ((<usize>i) << 2));
      const a = f64x2.promote_low_f32x4(x);
      const b = f64x2.promote_low_f32x4(v128.shuffle<f32>(x, x, 2, 3, 2, 3));
      low = f64x2.add(low, f64x2.mul(a, a));
      high = f64x2.add(high, f64x2.mul(b, b));
    }
    const both = f64x2.add(low, high);
    let sum = f64x2.extract_lane(both, 0) + f64x2.extract_lane(both, 1);
    for (; i < to; i++) {
      const x = <f64>load<f32>(g + ((<usize>i) << 2));
      sum += x * x;
    }
    store<f32>(partials + ((<usize>(first + unit)) << 2), <f32>sum);
  }
}

// partials, control [scale, sound, norm]; ints: count; floats: largest norm (0: none), scale before clipping.
export function gradientNorm_finish_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const partials = pointerAt(args, 0);
  const control = pointerAt(args, 1);
  const count = intAt(args, 2);
  const limit = floatAt(args, 3);
  const scale = floatAt(args, 4);
  let sum: f64 = 0;
  for (let i = 0; i < count; i++) sum += <f64>load<f32>(partials + ((<usize>i) << 2));
  const norm = <f32>(Math.sqrt(sum) * <f64>scale);
  const sound = norm - norm == 0;
  store<f32>(control, sound && limit > 0 && norm > limit ? (scale * limit) / norm : scale);
  store<f32>(control, sound ? 1 : 0, 4);
  store<f32>(control, norm, 8);
}

// control, gradient, momentum, x, partials; ints: n; floats: momentum. m <- mu m + (1-mu) g, x = mu m + (1-mu) g, and the sum
// of squares of every 4,096 of x.
export function optimizer_muonMoment_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 5);
  const keep = f32x4.splat(floatAt(args, 6));
  const add = f32x4.splat((1 - floatAt(args, 6)) * load<f32>(pointerAt(args, 0)));
  const g = pointerAt(args, 1);
  const m = pointerAt(args, 2);
  const x = pointerAt(args, 3);
  for (let unit = begin; unit < end; unit++) {
    let at = (<usize>(unit << 12)) << 2;
    const to = (<usize>min((unit + 1) << 12, n)) << 2;
    let sums = f32x4.splat(0);
    for (; at + 16 <= to; at += 16) {
      const grad = f32x4.mul(v128.load(g + at), add);
      const mean = f32x4.add(f32x4.mul(v128.load(m + at), keep), grad);
      const next = f32x4.add(f32x4.mul(mean, keep), grad);
      v128.store(m + at, mean);
      v128.store(x + at, next);
      sums = f32x4.add(sums, f32x4.mul(next, next));
    }
    for (; at < to; at += 4) {
      const grad = f32x4.mul(v128.load32_zero(g + at), add);
      const mean = f32x4.add(f32x4.mul(v128.load32_zero(m + at), keep), grad);
      const next = f32x4.add(f32x4.mul(mean, keep), grad);
      v128.store32_lane(m + at, mean, 0);
      v128.store32_lane(x + at, next, 0);
      sums = f32x4.add(sums, f32x4.mul(next, next));
    }
    const total = f32x4.extract_lane(sums, 0) + f32x4.extract_lane(sums, 1) + (f32x4.extract_lane(sums, 2) + f32x4.extract_lane(sums, 3));
    store<f32>(pointerAt(args, 4) + ((<usize>unit) << 2), total);
  }
}

// partials [maps, count], x [maps, n]; ints: n, count, maps. x <- x / sqrt(sum of its partials); one unit is 4,096 of a map.
export function optimizer_muonUnit_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2);
  const count = intAt(args, 3);
  for (let unit = begin; unit < end; unit++) {
    const map = unit / count, first = unit % count << 12;
    const partials = pointerAt(args, 0) + ((<usize>(map * count)) << 2);
    const x = pointerAt(args, 1) + ((<usize>map * n) << 2);
    let sum: f64 = 0;
    for (let i = 0; i < count; i++) sum += <f64>load<f32>(partials + ((<usize>i) << 2));
    const factor = f32x4.splat(<f32>(1 / (Math.sqrt(sum) + 1e-20)));
    let at = (<usize>first) << 2;
    const to = (<usize>min(first + 4096, n)) << 2;
    for (; at + 16 <= to; at += 16) v128.store(x + at, f32x4.mul(v128.load(x + at), factor));
    for (; at < to; at += 4) v128.store32_lane(x + at, f32x4.mul(v128.load32_zero(x + at), factor), 0);
  }
}

// gram [maps, n, n], its square, out; ints: n, maps; floats: a, b, c. out = a I + b gram + c square; one unit is a row.
export function optimizer_muonPolynomial_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const gram = pointerAt(args, 0);
  const square = pointerAt(args, 1);
  const out = pointerAt(args, 2);
  const n = intAt(args, 3);
  const first = floatAt(args, 5);
  const second = f32x4.splat(floatAt(args, 6));
  const third = f32x4.splat(floatAt(args, 7));
  for (let row = begin; row < end; row++) {
    let at = (<usize>row * n) << 2;
    const to = at + ((<usize>n) << 2);
    for (; at + 16 <= to; at += 16) {
      const sum = f32x4.add(f32x4.mul(v128.load(gram + at), second), f32x4.mul(v128.load(square + at), third));
      v128.store(out + at, sum);
    }
    for (; at < to; at += 4) {
      store<f32>(out + at, load<f32>(gram + at) * floatAt(args, 6) + load<f32>(square + at) * floatAt(args, 7));
    }
    const diagonal = out + ((<usize>row * n + row % n) << 2);
    store<f32>(diagonal, load<f32>(diagonal) + first);
  }
}

// parameter, x; ints: n; floats: rate, decay. p <- p (1 - decay) - rate x.
export function optimizer_muonApply_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const p = pointerAt(args, 0);
  const x = pointerAt(args, 1);
  const n = intAt(args, 2);
  const rate = f32x4.splat(floatAt(args, 3));
  const keep = f32x4.splat(1 - floatAt(args, 4));
  let at = (<usize>(begin << 12)) << 2;
  const to = (<usize>min(end << 12, n)) << 2;
  for (; at + 16 <= to; at += 16) {
    v128.store(p + at, f32x4.sub(f32x4.mul(v128.load(p + at), keep), f32x4.mul(v128.load(x + at), rate)));
  }
  for (; at < to; at += 4) {
    const moved = f32x4.sub(f32x4.mul(v128.load32_zero(p + at), keep), f32x4.mul(v128.load32_zero(x + at), rate));
    v128.store32_lane(p + at, moved, 0);
  }
}
