import { copyRow } from "../../../device/wasm/kernels/lanes.as";
import { exp4 } from "../../../device/wasm/kernels/math.as";
import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// Forward: x, weight [C, W], bias, initial [N, W-1, C], cuSeqlens, y, final [N, W-1, C].
// Backward: the first five, then dy, dFinal, dx, dWeight, dBias, dInitial.
// ints: N, T, C, W, x stride, y (or dy) stride, flags. Rows of dx lie C apart.
// Lanes are channels: four at a time, sixteen to a unit, so that a unit reads whole cache lines.
const HAS_BIAS = 1;
const HAS_INITIAL = 2;
const HAS_FINAL = 4;
const PACKED = 8;
const SILU = 16;
const CHANNELS = 16;
const ROWS = 128;

// @ts-ignore: decorator
@inline function loadLanes(from: usize, lanes: i32): v128 {
  if (lanes == 4) return v128.load(from);
  let x = v128.load32_zero(from);
  if (lanes > 1) x = v128.load32_lane(from + 4, x, 1);
  if (lanes > 2) x = v128.load32_lane(from + 8, x, 2);
  return x;
}

// @ts-ignore: decorator
@inline function storeLanes(to: usize, x: v128, lanes: i32): void {
  if (lanes == 4) {
    v128.store(to, x);
    return;
  }
  v128.store32_lane(to, x, 0);
  if (lanes > 1) v128.store32_lane(to + 4, x, 1);
  if (lanes > 2) v128.store32_lane(to + 8, x, 2);
}

// @ts-ignore: decorator
@inline function sigmoid(x: v128): v128 {
  const one = f32x4.splat(1);
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}

// @ts-ignore: decorator
@inline function firstRow(args: usize, flags: i32, n: i32, time: i32): i32 {
  return (flags & PACKED) != 0 ? load<i32>(pointerAt(args, 4) + ((<usize>n) << 2)) : n * time;
}

/** Weights of four channels as W vectors, tap by tap. */
function gatherTaps(weight: usize, channel: i32, lanes: i32, width: i32, taps: usize): void {
  for (let j = 0; j < width; j++) {
    let lane = 0;
    for (; lane < lanes; lane++) {
      const w = load<f32>(weight + ((<usize>((channel + lane) * width + j)) << 2));
      store<f32>(taps + ((<usize>(j * 4 + lane)) << 2), w);
    }
    for (; lane < 4; lane++) store<f32>(taps + ((<usize>(j * 4 + lane)) << 2), 0);
  }
}

/** Four channels of token `row`; tokens before the sequence come from the carried state, or are zero. */
// @ts-ignore: decorator
@inline function token(x: usize, step: usize, row: i32, first: i32, initial: usize, past: i32, channels: i32, lanes: i32): v128 {
  if (row >= first) return loadLanes(x + <usize>row * step, lanes);
  if (initial == 0) return f32x4.splat(0);
  return loadLanes(initial + ((<usize>((row - first + past) * channels)) << 2), lanes);
}

/**
 * Four taps of four channels: what was read stays in registers. The three rows before the first one lie `pastStep` apart, or
 * are zero without a place.
 */
function forwardFour(x: usize, step: usize, past: usize, pastStep: usize, from: i32, to: i32, y: usize, yStep: usize, taps: usize, bias: v128, silu: bool): void {
  let x0 = f32x4.splat(0), x1 = x0, x2 = x0;
  if (past != 0) {
    x0 = v128.load(past);
    x1 = v128.load(past + pastStep);
    x2 = v128.load(past + 2 * pastStep);
  }
  let source = x + <usize>from * step;
  let target = y + <usize>from * yStep;
  for (let t = from; t < to; t++) {
    const x3 = v128.load(source);
    let z = fma(x0, v128.load(taps), bias);
    z = fma(x1, v128.load(taps, 16), z);
    z = fma(x2, v128.load(taps, 32), z);
    z = fma(x3, v128.load(taps, 48), z);
    if (silu) z = f32x4.mul(z, sigmoid(z));
    v128.store(target, z);
    x0 = x1;
    x1 = x2;
    x2 = x3;
    source += step;
    target += yStep;
  }
}

/** Channels [from, to) of the last W - 1 tokens of sequence n, carried ones among them, to the final state. */
function keepLast(args: usize, n: i32, first: i32, last: i32, from: i32, to: i32): void {
  const channels = intAt(args, 9), past = intAt(args, 10) - 1;
  const step = (<usize>intAt(args, 11)) << 2, stateStep = (<usize>channels) << 2;
  const at = (<usize>from) << 2, bytes = (<usize>(to - from)) << 2;
  const state = <usize>(n * past) * stateStep + at;
  for (let i = 0; i < past; i++) {
    const row = last - past + i;
    const kept = pointerAt(args, 6) + state + <usize>i * stateStep;
    if (row >= first) copyRow(kept, pointerAt(args, 0) + at + <usize>row * step, bytes);
    else if ((intAt(args, 13) & HAS_INITIAL) == 0) memory.fill(kept, 0, bytes);
    else copyRow(kept, pointerAt(args, 3) + state + <usize>(row - first + past) * stateStep, bytes);
  }
}

/** One token of whole vectors of channels behind three carried ones, four taps: a step, in which nothing is used twice. */
function stepFour(x: usize, past: usize, pastStep: usize, weight: usize, bias: usize, y: usize, bytes: usize, silu: bool): void {
  for (let at: usize = 0; at < bytes; at += 16) {
    const w = weight + (at << 2), before = past + at;
    const a = v128.load(w), b = v128.load(w, 16), c = v128.load(w, 32), d = v128.load(w, 48);
    const ab = i32x4.shuffle(a, b, 0, 4, 1, 5), cd = i32x4.shuffle(c, d, 0, 4, 1, 5);
    const ab2 = i32x4.shuffle(a, b, 2, 6, 3, 7), cd2 = i32x4.shuffle(c, d, 2, 6, 3, 7);
    let z = bias == 0 ? f32x4.splat(0) : v128.load(bias + at);
    z = fma(v128.load(before), i32x4.shuffle(ab, cd, 0, 1, 4, 5), z);
    z = fma(v128.load(before + pastStep), i32x4.shuffle(ab, cd, 2, 3, 6, 7), z);
    z = fma(v128.load(before + 2 * pastStep), i32x4.shuffle(ab2, cd2, 0, 1, 4, 5), z);
    z = fma(v128.load(x + at), i32x4.shuffle(ab2, cd2, 2, 3, 6, 7), z);
    if (silu) z = f32x4.mul(z, sigmoid(z));
    v128.store(y + at, z);
  }
}

export function shortConv_block_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const time = intAt(args, 8);
  const channels = intAt(args, 9);
  const width = intAt(args, 10);
  const step = (<usize>intAt(args, 11)) << 2;
  const yStep = (<usize>intAt(args, 12)) << 2;
  const flags = intAt(args, 13);
  const past = width - 1;
  const blocks = (channels + CHANNELS - 1) / CHANNELS;
  for (let unit = begin; unit < end; unit++) {
    const n = unit / blocks;
    const from = (unit % blocks) * CHANNELS;
    const to = min(from + CHANNELS, channels);
    const first = firstRow(args, flags, n, time);
    const last = firstRow(args, flags, n + 1, time);
    const stateRow = (<usize>(n * past * channels)) << 2;
    const stateStep = (<usize>channels) << 2;
    const isStep = last - first == 1 && width == 4 && (to & 3) == 0 && (flags & HAS_INITIAL) != 0;
    if (isStep) {
      const at = (<usize>from) << 2;
      const bias = (flags & HAS_BIAS) != 0 ? pointerAt(args, 2) + at : 0;
      const x = pointerAt(args, 0) + at + <usize>first * step, y = pointerAt(args, 5) + at + <usize>first * yStep;
      stepFour(x, pointerAt(args, 3) + stateRow + at, stateStep, pointerAt(args, 1) + (at << 2), bias, y, (<usize>(to - from)) << 2, (flags & SILU) != 0);
    }
    for (let row = isStep ? last : first; row < last; row += ROWS) {
      const stop = min(row + ROWS, last);
      for (let c = from; c < to; c += 4) {
        const lanes = min(4, to - c);
        const at = (<usize>c) << 2;
        gatherTaps(pointerAt(args, 1), c, lanes, width, scratch);
        const bias = (flags & HAS_BIAS) != 0 ? loadLanes(pointerAt(args, 2) + at, lanes) : f32x4.splat(0);
        const initial = (flags & HAS_INITIAL) != 0 ? pointerAt(args, 3) + stateRow + at : 0;
        const x = pointerAt(args, 0) + at;
        const y = pointerAt(args, 5) + at;
        const silu = (flags & SILU) != 0;
        if (width == 4 && lanes == 4) {
          if (row == first) forwardFour(x, step, initial, stateStep, row, stop, y, yStep, scratch, bias, silu);
          else forwardFour(x, step, x + <usize>(row - 3) * step, step, row, stop, y, yStep, scratch, bias, silu);
          continue;
        }
        for (let t = row; t < stop; t++) {
          let z = bias;
          for (let j = 0; j < width; j++) {
            const source = token(x, step, t - past + j, first, initial, past, channels, lanes);
            z = fma(source, v128.load(scratch + ((<usize>j) << 4)), z);
          }
          if (silu) z = f32x4.mul(z, sigmoid(z));
          storeLanes(y + <usize>t * yStep, z, lanes);
        }
      }
    }
    if ((flags & HAS_FINAL) != 0) keepLast(args, n, first, last, from, to);
  }
}

/** dz of one token: the incoming gradient through the activation, whose argument is computed again. */
// @ts-ignore: decorator
@inline function gradientAt(dy: v128, x: usize, step: usize, t: i32, first: i32, initial: usize, channels: i32, lanes: i32, width: i32, taps: usize, bias: v128, silu: bool): v128 {
  if (!silu) return dy;
  let z = bias;
  for (let j = 0; j < width; j++) {
    const source = token(x, step, t - width + 1 + j, first, initial, width - 1, channels, lanes);
    z = fma(source, v128.load(taps + ((<usize>j) << 4)), z);
  }
  const s = sigmoid(z);
  // d silu = s (1 + z (1 - s))
  return f32x4.mul(dy, f32x4.mul(s, fma(z, f32x4.sub(f32x4.splat(1), s), f32x4.splat(1))));
}

/** One token's gradient from the outputs it feeds, later ones last in the ring; adds its share to the weight's. */
function sourceGradient(source: v128, ring: usize, taps: usize, sums: usize, width: i32): v128 {
  let dx = f32x4.splat(0);
  for (let j = 0; j < width; j++) {
    const later = v128.load(ring + ((<usize>j) << 4));
    const tap = (<usize>(width - 1 - j)) << 4;
    dx = fma(later, v128.load(taps + tap), dx);
    v128.store(sums + tap, fma(later, source, v128.load(sums + tap)));
  }
  return dx;
}

/** The sums of four channels, tap after tap, to where their weights lie. */
function scatterTaps(target: usize, c: i32, lanes: i32, width: i32, sums: usize): void {
  for (let lane = 0; lane < lanes; lane++) {
    for (let j = 0; j < width; j++) {
      const sum = load<f32>(sums + ((<usize>(j * 4 + lane)) << 2));
      store<f32>(target + ((<usize>((c + lane) * width + j)) << 2), sum);
    }
  }
}

// What four channels keep while their rows are worked through, each piece W vectors: taps, sums of the weight's gradient,
// the ring of dz; then the sum of the bias.
// @ts-ignore: decorator
@inline function memorySize(width: i32): usize {
  return (<usize>(3 * width + 1)) << 4;
}

/** Sources s in [from, to), last first: their gradients, and their share in those of weight and bias. */
function backwardRows(args: usize, n: i32, first: i32, last: i32, c: i32, from: i32, to: i32, memory: usize): void {
  const channels = intAt(args, 13);
  const width = intAt(args, 14);
  const step = (<usize>intAt(args, 15)) << 2;
  const dyStep = (<usize>intAt(args, 16)) << 2;
  const flags = intAt(args, 17);
  const past = width - 1;
  const lanes = min(4, channels - c);
  const at = (<usize>c) << 2;
  const taps = memory;
  const sums = taps + ((<usize>width) << 4);
  const ring = sums + ((<usize>width) << 4);
  const total = ring + ((<usize>width) << 4);
  const dxStep = (<usize>channels) << 2;
  const stateRow = (<usize>(n * past * channels)) << 2;
  const bias = (flags & HAS_BIAS) != 0 ? loadLanes(pointerAt(args, 2) + at, lanes) : f32x4.splat(0);
  const initial = (flags & HAS_INITIAL) != 0 ? pointerAt(args, 3) + stateRow + at : 0;
  const x = pointerAt(args, 0) + at;
  for (let s = to - 1; s >= from; s--) {
    for (let j = past; j > 0; j--) v128.store(ring + ((<usize>j) << 4), v128.load(ring + ((<usize>(j - 1)) << 4)));
    let dz = f32x4.splat(0);
    if (s >= first) {
      const dy = loadLanes(pointerAt(args, 5) + at + <usize>s * dyStep, lanes);
      dz = gradientAt(dy, x, step, s, first, initial, channels, lanes, width, taps, bias, (flags & SILU) != 0);
      v128.store(total, f32x4.add(v128.load(total), dz));
    }
    v128.store(ring, dz);
    const source = token(x, step, s, first, initial, past, channels, lanes);
    let dx = sourceGradient(source, ring, taps, sums, width);
    // The last W - 1 tokens of the sequence are also the state that is carried out.
    const kept = s - (last - past);
    if ((flags & HAS_FINAL) != 0 && kept >= 0) {
      dx = f32x4.add(dx, loadLanes(pointerAt(args, 6) + stateRow + at + ((<usize>(kept * channels)) << 2), lanes));
    }
    if (s >= first) storeLanes(pointerAt(args, 7) + at + <usize>s * dxStep, dx, lanes);
    else if (initial != 0) {
      storeLanes(pointerAt(args, 10) + stateRow + at + ((<usize>((s - first + past) * channels)) << 2), dx, lanes);
    }
  }
}

/** The same for four taps with silu where every source has three rows before it and none is carried out. */
function backwardFour(x: usize, step: usize, dy: usize, dyStep: usize, dx: usize, dxStep: usize, from: i32, to: i32, memory: usize, bias: v128): void {
  const one = f32x4.splat(1);
  let sum0 = v128.load(memory, 64);
  let sum1 = v128.load(memory, 80);
  let sum2 = v128.load(memory, 96);
  let sum3 = v128.load(memory, 112);
  let r0 = v128.load(memory, 128);
  let r1 = v128.load(memory, 144);
  let r2 = v128.load(memory, 160);
  let total = v128.load(memory, 192);
  let source = x + <usize>(to - 1) * step;
  let x3 = v128.load(source);
  let x2 = v128.load(source - step);
  let x1 = v128.load(source - 2 * step);
  source -= 3 * step;
  let incoming = dy + <usize>(to - 1) * dyStep;
  let target = dx + <usize>(to - 1) * dxStep;
  let r3 = r2;
  for (let s = to - 1; s >= from; s--) {
    const x0 = v128.load(source);
    let z = fma(x0, v128.load(memory), bias);
    z = fma(x1, v128.load(memory, 16), z);
    z = fma(x2, v128.load(memory, 32), z);
    z = fma(x3, v128.load(memory, 48), z);
    const g = sigmoid(z);
    const dz = f32x4.mul(v128.load(incoming), f32x4.mul(g, fma(z, f32x4.sub(one, g), one)));
    total = f32x4.add(total, dz);
    r3 = r2;
    r2 = r1;
    r1 = r0;
    r0 = dz;
    sum3 = fma(r0, x3, sum3);
    sum2 = fma(r1, x3, sum2);
    sum1 = fma(r2, x3, sum1);
    sum0 = fma(r3, x3, sum0);
    let d = fma(r0, v128.load(memory, 48), f32x4.splat(0));
    d = fma(r1, v128.load(memory, 32), d);
    d = fma(r2, v128.load(memory, 16), d);
    d = fma(r3, v128.load(memory), d);
    v128.store(target, d);
    x3 = x2;
    x2 = x1;
    x1 = x0;
    source -= step;
    incoming -= dyStep;
    target -= dxStep;
  }
  v128.store(memory, sum0, 64);
  v128.store(memory, sum1, 80);
  v128.store(memory, sum2, 96);
  v128.store(memory, sum3, 112);
  v128.store(memory, r0, 128);
  v128.store(memory, r1, 144);
  v128.store(memory, r2, 160);
  v128.store(memory, r3, 176);
  v128.store(memory, total, 192);
}

/** Four channels over one block of rows: the quick loop where it may run, the other one around it. */
function backwardBlock(args: usize, n: i32, first: i32, last: i32, c: i32, from: i32, to: i32, memory: usize): void {
  const channels = intAt(args, 13);
  const flags = intAt(args, 17);
  const at = (<usize>c) << 2;
  let high = (flags & HAS_FINAL) != 0 ? min(to, last - 3) : to;
  let low = max(from, first + 3);
  if (intAt(args, 14) != 4 || (flags & SILU) == 0 || channels - c < 4 || low >= high) {
    backwardRows(args, n, first, last, c, from, to, memory);
    return;
  }
  if (high < to) backwardRows(args, n, first, last, c, high, to, memory);
  const bias = (flags & HAS_BIAS) != 0 ? v128.load(pointerAt(args, 2) + at) : f32x4.splat(0);
  const step = (<usize>intAt(args, 15)) << 2;
  const dyStep = (<usize>intAt(args, 16)) << 2;
  backwardFour(pointerAt(args, 0) + at, step, pointerAt(args, 5) + at, dyStep, pointerAt(args, 7) + at, (<usize>channels) << 2, low, high, memory, bias);
  if (low > from) backwardRows(args, n, first, last, c, from, low, memory);
}

/** Zeroes of `count` vectors. */
function clear(at: usize, count: i32): void {
  for (let i = 0; i < count; i++) v128.store(at + ((<usize>i) << 4), f32x4.splat(0));
}

export function shortConv_block_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const sequences = intAt(args, 11);
  const time = intAt(args, 12);
  const channels = intAt(args, 13);
  const width = intAt(args, 14);
  const flags = intAt(args, 17);
  const size = memorySize(width);
  // One unit is sixteen channels over all sequences, so that every weight gradient is one chain of sums, in blocks of rows,
  // so that a cache line is still near when its other channels are read.
  for (let unit = begin; unit < end; unit++) {
    const from = unit * CHANNELS;
    const to = min(from + CHANNELS, channels);
    for (let c = from; c < to; c += 4) {
      const memory = scratch + size * <usize>((c - from) >> 2);
      gatherTaps(pointerAt(args, 1), c, min(4, to - c), width, memory);
      clear(memory + ((<usize>width) << 4), 2 * width + 1);
    }
    for (let n = 0; n < sequences; n++) {
      const first = firstRow(args, flags, n, time);
      const last = firstRow(args, flags, n + 1, time);
      // Source s feeds outputs s .. s + W - 1: from the end, the ring holds dz of the W outputs from s on.
      for (let c = from; c < to; c += 4) clear(scratch + size * <usize>((c - from) >> 2) + ((<usize>(2 * width)) << 4), width);
      for (let stop = last; stop > first - width + 1; stop -= ROWS) {
        const start = stop - ROWS <= first ? first - width + 1 : stop - ROWS;
        for (let c = from; c < to; c += 4) {
          backwardBlock(args, n, first, last, c, start, stop, scratch + size * <usize>((c - from) >> 2));
        }
        if (start <= first) break;
      }
    }
    for (let c = from; c < to; c += 4) {
      const memory = scratch + size * <usize>((c - from) >> 2);
      const lanes = min(4, to - c);
      scatterTaps(pointerAt(args, 8), c, lanes, width, memory + ((<usize>width) << 4));
      if ((flags & HAS_BIAS) != 0) {
        storeLanes(pointerAt(args, 9) + ((<usize>c) << 2), v128.load(memory + ((<usize>(3 * width)) << 4)), lanes);
      }
    }
  }
}
