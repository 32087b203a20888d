import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { dotRun } from "../../../device/wasm/kernels/rows.as";
import { sigmoidRun } from "../../../device/wasm/kernels/generated/sigmoid-run.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { factors, gatherRow, scaleRow, slopeRow } from "./parts.as";

// Norms of rms-norm.as.ts with a gate a(z): z·sigmoid(z), or sigmoid(z). The gate multiplies what comes out of the norm
// (last) or what goes in (first). Scratch: groups·n floats of factors, then rows of n floats.

// prettier-ignore
const ONE = memory.data<f32>([1, 1, 1, 1], 16);

/** a(z) from s = sigmoid(z). */
// @ts-ignore: decorator
@inline function gateOf(z: v128, s: v128, silu: bool): v128 {
  return silu ? f32x4.mul(z, s) : s;
}

/** a′(z): s + z s (1 − s), or s (1 − s). */
// @ts-ignore: decorator
@inline function gateSlope(z: v128, s: v128, silu: bool): v128 {
  const rest = f32x4.sub(v128.load(ONE), s);
  return silu ? fma(f32x4.mul(z, s), rest, s) : f32x4.mul(s, rest);
}

// @ts-ignore: decorator
@inline function gateStep(x: usize, z: usize, s: usize, y: usize, silu: bool, count: i32): void {
  const a = silu ? f32x4.mul(take(z, count), take(s, count)) : take(s, count);
  put(y, f32x4.mul(take(x, count), a), count);
}

/** y = x·a(z) from the sigmoids s of z; y may be x or s. */
// @ts-ignore: decorator
@inline function gateRun(x: usize, z: usize, s: usize, y: usize, n: i32, silu: bool): void {
  for (; n >= 8; n -= 8) {
    gateStep(x, z, s, y, silu, 4);
    gateStep(x + 16, z + 16, s + 16, y + 16, silu, 4);
    x += 32;
    z += 32;
    s += 32;
    y += 32;
  }
  for (; n > 0; n -= 4) {
    gateStep(x, z, s, y, silu, min(4, n));
    x += 16;
    z += 16;
    s += 16;
    y += 16;
  }
}

/** y = x·a(z), the sigmoids of z left in `room`, which may be y. */
function gateRow(x: usize, z: usize, room: usize, y: usize, n: i32, silu: bool): void {
  sigmoidRun(z, room, n);
  if (silu) gateRun(x, z, room, y, n, true);
  else gateRun(x, z, room, y, n, false);
}

// @ts-ignore: decorator
@inline function normStep(x: usize, w: usize, z: usize, y: usize, r: v128, silu: bool, count: i32): void {
  const a = silu ? f32x4.mul(take(z, count), take(y, count)) : take(y, count);
  put(y, f32x4.mul(f32x4.mul(f32x4.mul(take(x, count), r), take(w, count)), a), count);
}

// @ts-ignore: decorator
@inline function normRun(x: usize, w: usize, z: usize, y: usize, n: i32, r: v128, silu: bool): void {
  for (; n >= 8; n -= 8) {
    normStep(x, w, z, y, r, silu, 4);
    normStep(x + 16, w + 16, z + 16, y + 16, r, silu, 4);
    x += 32;
    w += 32;
    z += 32;
    y += 32;
  }
  for (; n > 0; n -= 4) {
    normStep(x, w, z, y, r, silu, min(4, n));
    x += 16;
    w += 16;
    z += 16;
    y += 16;
  }
}

/** y = r·x·w·a(z). */
function normRow(x: usize, w: usize, z: usize, y: usize, n: i32, r: f32, silu: bool): void {
  sigmoidRun(z, y, n);
  if (silu) normRun(x, w, z, y, n, f32x4.splat(r), true);
  else normRun(x, w, z, y, n, f32x4.splat(r), false);
}

// args: x, w, z, y, r; n, stride, groups, mode, zStride, silu, first, rows; share, eps. One unit is a row.
export function rmsNorm_gated_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 5), stride = (<usize>intAt(args, 6)) << 2, groups = intAt(args, 7);
  const zStride = (<usize>intAt(args, 9)) << 2, first = intAt(args, 11) != 0;
  const silu = intAt(args, 10) != 0;
  const w = factors(pointerAt(args, 1), scratch, n * groups, intAt(args, 8));
  for (let row = begin; row < end; row++) {
    let x = pointerAt(args, 0) + (<usize>row) * stride;
    const z = pointerAt(args, 2) + (<usize>row) * zStride;
    const y = pointerAt(args, 3) + (((<usize>row) * (<usize>n)) << 2);
    if (first) {
      gateRow(x, z, y, y, n, silu);
      x = y;
    }
    const r: f32 = <f32>1 / sqrt<f32>(dotRun(x, x, n) * floatAt(args, 13) + floatAt(args, 14));
    store<f32>(pointerAt(args, 4) + ((<usize>row) << 2), r);
    const factor = w + ((<usize>((row % groups) * n)) << 2);
    if (first) scaleRow(x, factor, y, n, r);
    else normRow(x, factor, z, y, n, r, silu);
  }
}

/** Four lanes of what openLast leaves; their part of the sum comes back. */
// @ts-ignore: decorator
@inline function openStep(x: usize, w: usize, z: usize, dy: usize, dx: usize, dz: usize, dw: usize, r: v128, sum: v128, silu: bool, learns: bool, count: i32): v128 {
  const s = take(dx, count), slope = f32x4.mul(f32x4.mul(take(dy, count), r), s);
  const u = silu ? f32x4.mul(slope, take(z, count)) : slope;
  const weight = take(w, count), row = take(x, count);
  put(dx, f32x4.mul(u, weight), count);
  const turn = f32x4.mul(u, row);
  if (learns) put(dw, f32x4.add(take(dw, count), turn), count);
  const rest = f32x4.sub(v128.load(ONE), s);
  put(dz, f32x4.mul(weight, silu ? fma(turn, rest, f32x4.mul(slope, row)) : f32x4.mul(turn, rest)), count);
  return fma(turn, weight, sum);
}

// @ts-ignore: decorator
@inline function openRun(x: usize, w: usize, z: usize, dy: usize, dx: usize, dz: usize, dw: usize, n: i32, r: v128, silu: bool, learns: bool): f32 {
  let sum = f32x4.splat(0);
  for (; n >= 16; n -= 16) {
    sum = openStep(x, w, z, dy, dx, dz, dw, r, sum, silu, learns, 4);
    sum = openStep(x + 16, w + 16, z + 16, dy + 16, dx + 16, dz + 16, dw + 16, r, sum, silu, learns, 4);
    sum = openStep(x + 32, w + 32, z + 32, dy + 32, dx + 32, dz + 32, dw + 32, r, sum, silu, learns, 4);
    sum = openStep(x + 48, w + 48, z + 48, dy + 48, dx + 48, dz + 48, dw + 48, r, sum, silu, learns, 4);
    x += 64;
    w += 64;
    z += 64;
    dy += 64;
    dx += 64;
    dz += 64;
    dw += 64;
  }
  for (; n > 0; n -= 4) {
    sum = openStep(x, w, z, dy, dx, dz, dw, r, sum, silu, learns, min(4, n));
    x += 16;
    w += 16;
    z += 16;
    dy += 16;
    dx += 16;
    dz += 16;
    dw += 16;
  }
  return sumLanes(sum);
}

function openSilu(x: usize, w: usize, z: usize, dy: usize, dx: usize, dz: usize, dw: usize, n: i32, r: v128, learns: bool): f32 {
  if (learns) return openRun(x, w, z, dy, dx, dz, dw, n, r, true, true);
  return openRun(x, w, z, dy, dx, dz, dw, n, r, true, false);
}

function openSigmoid(x: usize, w: usize, z: usize, dy: usize, dx: usize, dz: usize, dw: usize, n: i32, r: v128, learns: bool): f32 {
  if (learns) return openRun(x, w, z, dy, dx, dz, dw, n, r, false, true);
  return openRun(x, w, z, dy, dx, dz, dw, n, r, false, false);
}

/** Gate last: dx = u·w for u = r·dy·a(z), dw += u·x and dz = r·dy·x·w·a′(z); Σ u·w·x comes back. */
function openLast(x: usize, w: usize, z: usize, dy: usize, dx: usize, dz: usize, dw: usize, n: i32, r: f32, silu: bool, learns: bool): f32 {
  sigmoidRun(z, dx, n);
  if (silu) return openSilu(x, w, z, dy, dx, dz, dw, n, f32x4.splat(r), learns);
  return openSigmoid(x, w, z, dy, dx, dz, dw, n, f32x4.splat(r), learns);
}

// @ts-ignore: decorator
@inline function turnStep(x: usize, dx: usize, minusC: v128, count: i32): void {
  put(dx, fma(minusC, take(x, count), take(dx, count)), count);
}

/** dx −= c·x. */
function turnLast(x: usize, dx: usize, n: i32, c: f32): void {
  const minusC = f32x4.splat(-c);
  for (; n >= 16; n -= 16) {
    turnStep(x, dx, minusC, 4);
    turnStep(x + 16, dx + 16, minusC, 4);
    turnStep(x + 32, dx + 32, minusC, 4);
    turnStep(x + 48, dx + 48, minusC, 4);
    x += 64;
    dx += 64;
  }
  for (; n > 0; n -= 4) {
    turnStep(x, dx, minusC, min(4, n));
    x += 16;
    dx += 16;
  }
}

// @ts-ignore: decorator
@inline function closeStep(x: usize, z: usize, dx: usize, dz: usize, room: usize, silu: bool, count: i32): void {
  const dh = take(dx, count), gate = take(z, count), s = take(room, count);
  put(dz, f32x4.mul(f32x4.mul(dh, take(x, count)), gateSlope(gate, s, silu)), count);
  put(dx, f32x4.mul(dh, gateOf(gate, s, silu)), count);
}

// @ts-ignore: decorator
@inline function closeRow(x: usize, z: usize, dx: usize, dz: usize, room: usize, n: i32, silu: bool): void {
  for (; n >= 4; n -= 4) {
    closeStep(x, z, dx, dz, room, silu, 4);
    x += 16;
    z += 16;
    dx += 16;
    dz += 16;
    room += 16;
  }
  if (n > 0) closeStep(x, z, dx, dz, room, silu, n);
}

/** Gate first: from dh in dx and the sigmoids in `room`, dz = dh·x·a′(z) and dx = dh·a(z). */
function closeFirst(x: usize, z: usize, dx: usize, dz: usize, room: usize, n: i32, silu: bool): void {
  if (silu) closeRow(x, z, dx, dz, room, n, true);
  else closeRow(x, z, dx, dz, room, n, false);
}

// args: x, w, z, r, dy, dx, dz, dw; n, stride, groups, mode, zStride, silu, first, rows, block; share. One unit is
// `block` times `groups` rows, whose part of the gradient by w is row `unit` of dw; there is none in mode 0.
export function rmsNorm_gated_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 8), groups = intAt(args, 10), mode = intAt(args, 11), first = intAt(args, 14) != 0;
  const silu = intAt(args, 13) != 0;
  const rowBytes = (<usize>n) << 2, perUnit = intAt(args, 16) * groups;
  const w = factors(pointerAt(args, 1), scratch, n * groups, mode);
  const room = scratch + (<usize>groups) * rowBytes, gatedRow = room + rowBytes;
  for (let unit = begin; unit < end; unit++) {
    const dw = pointerAt(args, 7) + (<usize>unit) * (<usize>groups) * rowBytes;
    if (mode != 0) memory.fill(dw, 0, (<usize>groups) * rowBytes);
    const last = min((unit + 1) * perUnit, intAt(args, 15));
    for (let row = unit * perUnit; row < last; row++) {
      const x = pointerAt(args, 0) + (((<usize>row) * (<usize>intAt(args, 9))) << 2);
      const z = pointerAt(args, 2) + (((<usize>row) * (<usize>intAt(args, 12))) << 2);
      const at = (<usize>row) * rowBytes, group = (<usize>(row % groups)) * rowBytes;
      const dy = pointerAt(args, 4) + at, dx = pointerAt(args, 5) + at, dz = pointerAt(args, 6) + at;
      const r = load<f32>(pointerAt(args, 3) + ((<usize>row) << 2));
      const share = floatAt(args, 17) * r * r;
      if (!first) {
        const sum = openLast(x, w + group, z, dy, dx, dz, dw + group, n, r, silu, mode != 0);
        turnLast(x, dx, n, sum * share);
        continue;
      }
      gateRow(x, z, room, gatedRow, n, silu);
      const c = gatherRow(gatedRow, w + group, dy, dw + group, n, r, mode != 0) * share * r;
      slopeRow(gatedRow, w + group, dy, dx, n, r, c);
      closeFirst(x, z, dx, dz, room, n, silu);
    }
  }
}
