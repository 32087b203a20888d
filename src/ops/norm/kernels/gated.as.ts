import { put, sumLanes, take } from "../../../device/wasm/kernels/lanes.as";
import { dotRun } from "../../../device/wasm/kernels/rows.as";
import { sigmoid4, silu4 } from "../../../device/wasm/kernels/sigmoid.as";
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
@inline function gateStep(x: usize, z: usize, y: usize, room: usize, silu: bool, keeps: bool, count: i32): void {
  const gate = take(z, count), s = sigmoid4(gate);
  if (keeps) put(room, s, count);
  put(y, f32x4.mul(take(x, count), gateOf(gate, s, silu)), count);
}

/** y = x·a(z), y may be x; the sigmoids are left in `room` where they are kept. */
// @ts-ignore: decorator
@inline function gateRow(x: usize, z: usize, y: usize, room: usize, n: i32, silu: bool, keeps: bool): void {
  for (; n >= 4; n -= 4) {
    gateStep(x, z, y, room, silu, keeps, 4);
    x += 16;
    z += 16;
    y += 16;
    if (keeps) room += 16;
  }
  if (n > 0) gateStep(x, z, y, room, silu, keeps, n);
}

// @ts-ignore: decorator
@inline function normStep(x: usize, w: usize, z: usize, y: usize, r: v128, silu: bool, count: i32): void {
  const gate = take(z, count), a = silu ? silu4(gate) : sigmoid4(gate);
  put(y, f32x4.mul(f32x4.mul(f32x4.mul(take(x, count), r), take(w, count)), a), count);
}

/** y = r·x·w·a(z). */
// @ts-ignore: decorator
@inline function normRow(x: usize, w: usize, z: usize, y: usize, n: i32, r: v128, silu: bool): void {
  for (; n >= 4; n -= 4) {
    normStep(x, w, z, y, r, silu, 4);
    x += 16;
    w += 16;
    z += 16;
    y += 16;
  }
  if (n > 0) normStep(x, w, z, y, r, silu, n);
}

function gateKeeping(x: usize, z: usize, y: usize, room: usize, n: i32, silu: bool): void {
  if (silu) gateRow(x, z, y, room, n, true, true);
  else gateRow(x, z, y, room, n, false, true);
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
      if (silu) gateRow(x, z, y, 0, n, true, false);
      else gateRow(x, z, y, 0, n, false, false);
      x = y;
    }
    const r: f32 = <f32>1 / sqrt<f32>(dotRun(x, x, n) * floatAt(args, 13) + floatAt(args, 14));
    store<f32>(pointerAt(args, 4) + ((<usize>row) << 2), r);
    const factor = w + ((<usize>((row % groups) * n)) << 2);
    if (first) scaleRow(x, factor, y, n, r);
    else if (silu) normRow(x, factor, z, y, n, f32x4.splat(r), true);
    else normRow(x, factor, z, y, n, f32x4.splat(r), false);
  }
}

/** Four lanes of what openRow leaves; their part of Σ u·w·x comes back. */
// @ts-ignore: decorator
@inline function openStep(x: usize, w: usize, z: usize, dy: usize, dz: usize, room: usize, r: v128, sum: v128, silu: bool, count: i32): v128 {
  const gate = take(z, count), grad = take(dy, count), s = sigmoid4(gate);
  const a = gateOf(gate, s, silu), weighed = f32x4.mul(take(x, count), take(w, count));
  put(room, f32x4.mul(grad, a), count);
  const turn = f32x4.mul(grad, weighed);
  put(dz, f32x4.mul(f32x4.mul(turn, r), gateSlope(gate, s, silu)), count);
  return fma(turn, a, sum);
}

// @ts-ignore: decorator
@inline function openRow(x: usize, w: usize, z: usize, dy: usize, dz: usize, room: usize, n: i32, r: v128, silu: bool): f32 {
  let a = f32x4.splat(0), b = a;
  for (; n >= 8; n -= 8) {
    a = openStep(x, w, z, dy, dz, room, r, a, silu, 4);
    b = openStep(x + 16, w + 16, z + 16, dy + 16, dz + 16, room + 16, r, b, silu, 4);
    x += 32;
    w += 32;
    z += 32;
    dy += 32;
    dz += 32;
    room += 32;
  }
  for (; n > 0; n -= 4) {
    a = openStep(x, w, z, dy, dz, room, r, a, silu, min(4, n));
    x += 16;
    w += 16;
    z += 16;
    dy += 16;
    dz += 16;
    room += 16;
  }
  return sumLanes(f32x4.add(a, b));
}

/** Gate last: dz = dy·r·x·w·a′(z), u = dy·a(z) is left in `room`, Σ u·w·x comes back. */
function openLast(x: usize, w: usize, z: usize, dy: usize, dz: usize, room: usize, n: i32, r: f32, silu: bool): f32 {
  if (silu) return openRow(x, w, z, dy, dz, room, n, f32x4.splat(r), true);
  return openRow(x, w, z, dy, dz, room, n, f32x4.splat(r), false);
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
      const share = floatAt(args, 17) * r * r * r;
      if (!first) {
        const sum = openLast(x, w + group, z, dy, dz, room, n, r, silu);
        slopeRow(x, w + group, room, dx, dw + group, n, r, sum * share, mode != 0);
        continue;
      }
      gateKeeping(x, z, gatedRow, room, n, silu);
      const c = gatherRow(gatedRow, w + group, dy, dw + group, n, r, mode != 0) * share;
      slopeRow(gatedRow, w + group, dy, dx, 0, n, r, c, false);
      closeFirst(x, z, dx, dz, room, n, silu);
    }
  }
}
