import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// @ts-ignore: decorator
@inline function mixed(x: v128): v128 {
  let h = v128.xor(x, i32x4.shr_u(x, 16));
  h = i32x4.mul(h, i32x4.splat(0x85ebca6b));
  h = v128.xor(h, i32x4.shr_u(h, 13));
  h = i32x4.mul(h, i32x4.splat(0xc2b2ae35));
  return v128.xor(h, i32x4.shr_u(h, 16));
}

// x, y; ints: n, key, threshold; floats: factor. Element i stays where mix(mix(i) ^ key) >= threshold, unsigned.
// One unit is 4,096 elements.
export function dropout_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const x = pointerAt(args, 0);
  const y = pointerAt(args, 1);
  const to = min(end << 12, intAt(args, 2));
  const key = i32x4.splat(intAt(args, 3));
  const threshold = i32x4.splat(intAt(args, 4));
  const factor = f32x4.splat(floatAt(args, 5));
  const lanes = i32x4(0, 1, 2, 3);
  for (let i = begin << 12; i < to; i += 4) {
    const hash = mixed(v128.xor(mixed(i32x4.add(i32x4.splat(i), lanes)), key));
    const stays = i32x4.ge_u(hash, threshold);
    const at = (<usize>i) << 2;
    if (i + 4 <= to) v128.store(y + at, v128.and(f32x4.mul(v128.load(x + at), factor), stays));
    else {
      for (let lane = 0; lane < to - i; lane++) {
        const offset = at + ((<usize>lane) << 2);
        const one = i32x4.ge_u(mixed(v128.xor(mixed(i32x4.splat(i + lane)), key)), threshold);
        v128.store32_lane(y + offset, v128.and(f32x4.mul(v128.load32_zero(x + offset), factor), one), 0);
      }
    }
  }
}
