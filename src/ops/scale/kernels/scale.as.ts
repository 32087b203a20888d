import { loadLanes, storeLanes } from "../../../device/wasm/kernels/lanes.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// args: x, y, n, factor, shift. One unit is 4,096 elements.
export function scale_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, y = pointerAt(args, 1) + skip;
  const factor = f32x4.splat(floatAt(args, 3)), shift = f32x4.splat(floatAt(args, 4));
  let left = min(end << 12, intAt(args, 2)) - (begin << 12);
  for (; left >= 16; left -= 16) {
    v128.store(y, fma(v128.load(x), factor, shift));
    v128.store(y, fma(v128.load(x, 16), factor, shift), 16);
    v128.store(y, fma(v128.load(x, 32), factor, shift), 32);
    v128.store(y, fma(v128.load(x, 48), factor, shift), 48);
    x += 64;
    y += 64;
  }
  for (; left >= 4; left -= 4) {
    v128.store(y, fma(v128.load(x), factor, shift));
    x += 16;
    y += 16;
  }
  if (left > 0) storeLanes(y, fma(loadLanes(x, left), factor, shift), left);
}
