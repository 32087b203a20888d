import { floatAt, pointerAt, intAt } from "../../../device/wasm/kernels/simd.as";

// args: y, n, value. One unit is 1,024 elements.
export function fill_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const y = pointerAt(args, 0);
  const n = intAt(args, 1);
  const value = floatAt(args, 2);
  let from = begin << 10;
  const to = min(end << 10, n);
  const wide = f32x4.splat(value);
  for (; from + 4 <= to; from += 4) v128.store(y + ((<usize>from) << 2), wide);
  for (; from < to; from++) store<f32>(y + ((<usize>from) << 2), value);
}
