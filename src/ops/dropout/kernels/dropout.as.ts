import { put, take } from "../../../device/wasm/kernels/lanes.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

const SPREAD: i32 = 0x9e3779b9;

// prettier-ignore
const MIX = memory.data<i32>([
  0x85ebca6b, 0x85ebca6b, 0x85ebca6b, 0x85ebca6b, // 0: odd factors of a mix of 32 bits
  0xc2b2ae35, 0xc2b2ae35, 0xc2b2ae35, 0xc2b2ae35, // 16
], 16);

/** Ones in the lanes whose element falls. */
// @ts-ignore: decorator
@inline function falls(place: v128, key: v128, threshold: v128): v128 {
  let h = v128.xor(place, key);
  h = i32x4.mul(v128.xor(h, i32x4.shr_u(h, 16)), v128.load(MIX));
  h = i32x4.mul(v128.xor(h, i32x4.shr_u(h, 13)), v128.load(MIX, 16));
  return i32x4.lt_s(h, threshold);
}

// x, y; ints: n, key, threshold; floats: factor. Element i falls where mix(i·SPREAD ^ key) < threshold, signed.
// One unit is 4,096 elements.
export function dropout_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, y = pointerAt(args, 1) + skip;
  let left = min(end << 12, intAt(args, 2)) - (begin << 12);
  const key = i32x4.splat(intAt(args, 3)), threshold = i32x4.splat(intAt(args, 4));
  const factor = f32x4.splat(floatAt(args, 5)), step = i32x4.splat(SPREAD << 2);
  let place = i32x4.add(i32x4.splat((begin << 12) * SPREAD), i32x4(0, SPREAD, 2 * SPREAD, 3 * SPREAD));
  for (; left >= 8; left -= 8) {
    const next = i32x4.add(place, step);
    const first = falls(place, key, threshold), second = falls(next, key, threshold);
    v128.store(y, v128.andnot(f32x4.mul(v128.load(x), factor), first));
    v128.store(y, v128.andnot(f32x4.mul(v128.load(x, 16), factor), second), 16);
    place = i32x4.add(next, step);
    x += 32;
    y += 32;
  }
  for (; left > 0; left -= 4) {
    const count = min(4, left);
    put(y, v128.andnot(f32x4.mul(take(x, count), factor), falls(place, key, threshold)), count);
    place = i32x4.add(place, step);
    x += 16;
    y += 16;
  }
}
