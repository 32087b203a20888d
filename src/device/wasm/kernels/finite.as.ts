// What a weight of 0 may be multiplied with: 0 times NaN or an infinity is NaN.
import { fma } from "./simd.as";

/** True where none of so many rows of floats, `row` bytes apart, holds a NaN or an infinity. */
export function finiteRows(p: usize, row: usize, rows: i32, width: i32): bool {
  const zero = f32x4.splat(0);
  let a = zero, b = zero, c = zero, d = zero;
  let rest: f32 = 0;
  for (; rows > 0; rows--) {
    let at = p;
    for (const end = p + (<usize>(width & ~15) << 2); at < end; at += 64) {
      a = fma(v128.load(at), zero, a);
      b = fma(v128.load(at, 16), zero, b);
      c = fma(v128.load(at, 32), zero, c);
      d = fma(v128.load(at, 48), zero, d);
    }
    for (const end = p + (<usize>width << 2); at < end; at += 4) rest += load<f32>(at) * 0;
    p += row;
  }
  return i32x4.all_true(f32x4.eq(f32x4.add(f32x4.add(a, b), f32x4.add(c, d)), zero)) && rest == 0;
}
