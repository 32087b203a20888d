import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// x, cosines [P, R/2], sines [P, R/2], positions int32 [B, T], y [B, T, H, K].
// ints: rows, T, H, K, half = R/2, x stride, first position, has positions, direction (1 or -1).
// One unit is 16 rows.

export function rotary_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const rows = intAt(args, 5);
  const time = intAt(args, 6);
  const heads = intAt(args, 7);
  const width = intAt(args, 8);
  const half = intAt(args, 9);
  const xStep = (<usize>intAt(args, 10)) << 2;
  const offset = intAt(args, 11);
  const positions = intAt(args, 12) != 0 ? pointerAt(args, 3) : 0;
  const flip = f32x4.splat(<f32>intAt(args, 13));
  const sign = <f32>intAt(args, 13);
  const halfBytes = (<usize>half) << 2;
  const headBytes = (<usize>width) << 2;
  const last = min(end << 4, rows);
  for (let row = begin << 4; row < last; row++) {
    const position = positions != 0 ? load<i32>(positions + ((<usize>row) << 2)) : offset + (row % time);
    const cosines = pointerAt(args, 1) + <usize>position * halfBytes;
    const sines = pointerAt(args, 2) + <usize>position * halfBytes;
    let x = pointerAt(args, 0) + <usize>row * xStep;
    let y = pointerAt(args, 4) + <usize>row * <usize>heads * headBytes;
    for (let h = 0; h < heads; h++) {
      let i = 0;
      for (; i + 4 <= half; i += 4) {
        const at = (<usize>i) << 2;
        const a = v128.load(x + at);
        const b = v128.load(x + halfBytes + at);
        const c = v128.load(cosines + at);
        const s = f32x4.mul(v128.load(sines + at), flip);
        v128.store(y + at, fma(f32x4.neg(b), s, f32x4.mul(a, c)));
        v128.store(y + halfBytes + at, fma(a, s, f32x4.mul(b, c)));
      }
      for (; i < half; i++) {
        const at = (<usize>i) << 2;
        const a = load<f32>(x + at);
        const b = load<f32>(x + halfBytes + at);
        const c = load<f32>(cosines + at);
        const s = load<f32>(sines + at) * sign;
        store<f32>(y + at, a * c - b * s);
        store<f32>(y + halfBytes + at, b * c + a * s);
      }
      for (i = half << 1; i < width; i++) {
        const at = (<usize>i) << 2;
        store<f32>(y + at, load<f32>(x + at));
      }
      x += headBytes;
      y += headBytes;
    }
  }
}
