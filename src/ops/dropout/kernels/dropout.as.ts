import { put, take } from "../../../device/wasm/kernels/lanes.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// prettier-ignore
const MIX = memory.data<i32>([
  0x85ebca6b, 0x85ebca6b, 0x85ebca6b, 0x85ebca6b, // 0: odd factors of a mix of 32 bits
  0xc2b2ae35, 0xc2b2ae35, 0xc2b2ae35, 0xc2b2ae35, // 16
  0, 1, 2, 3, // 32: the numbers of the first elements
  4, 4, 4, 4, // 48
], 16);

// @ts-ignore: decorator
@inline function mixed(x: v128): v128 {
  let h = v128.xor(x, i32x4.shr_u(x, 16));
  h = i32x4.mul(h, v128.load(MIX));
  h = v128.xor(h, i32x4.shr_u(h, 13));
  h = i32x4.mul(h, v128.load(MIX, 16));
  return v128.xor(h, i32x4.shr_u(h, 16));
}

/** Ones in the lanes whose element stays. */
// @ts-ignore: decorator
@inline function stays(index: v128, key: v128, threshold: v128): v128 {
  return i32x4.ge_u(mixed(v128.xor(mixed(index), key)), threshold);
}

// x, y; ints: n, key, threshold; floats: factor. Element i stays where mix(mix(i) ^ key) >= threshold, unsigned.
// One unit is 4,096 elements.
export function dropout_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, y = pointerAt(args, 1) + skip;
  let left = min(end << 12, intAt(args, 2)) - (begin << 12);
  const key = i32x4.splat(intAt(args, 3)), threshold = i32x4.splat(intAt(args, 4));
  const factor = f32x4.splat(floatAt(args, 5));
  let index = i32x4.add(i32x4.splat(begin << 12), v128.load(MIX, 32));
  for (; left >= 8; left -= 8) {
    const next = i32x4.add(index, v128.load(MIX, 48));
    const first = stays(index, key, threshold), second = stays(next, key, threshold);
    v128.store(y, v128.and(f32x4.mul(v128.load(x), factor), first));
    v128.store(y, v128.and(f32x4.mul(v128.load(x, 16), factor), second), 16);
    index = i32x4.add(next, v128.load(MIX, 48));
    x += 32;
    y += 32;
  }
  for (; left > 0; left -= 4) {
    const count = min(4, left);
    put(y, v128.and(f32x4.mul(take(x, count), factor), stays(index, key, threshold)), count);
    index = i32x4.add(index, v128.load(MIX, 48));
    x += 16;
    y += 16;
  }
}
