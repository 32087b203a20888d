import { floatAt, fma, intAt, pointerAt } from "./simd.as";

// args: a, b, y, k. a is [k][4], b is [k][16], y is [4][16]. One unit does the whole sum once more, to be timed: the
// pairs of neighbouring loads and stores are what V8 may fuse to 256 bits, and the sums are what that must not change.
export function selfTest_tile_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  for (let unit = begin; unit < end; unit++) tile(pointerAt(args, 0), pointerAt(args, 1), pointerAt(args, 2), intAt(args, 3));
}

function tile(a: usize, b: usize, y: usize, k: i32): void {
  let c00 = f32x4.splat(0), c01 = c00, c02 = c00, c03 = c00;
  let c10 = c00, c11 = c00, c12 = c00, c13 = c00;
  let c20 = c00, c21 = c00, c22 = c00, c23 = c00;
  let c30 = c00, c31 = c00, c32 = c00, c33 = c00;
  for (let i = 0; i < k; i++) {
    const b0 = v128.load(b), b1 = v128.load(b, 16), b2 = v128.load(b, 32), b3 = v128.load(b, 48);
    const a0 = v128.load32_splat(a);
    c00 = fma(a0, b0, c00); c01 = fma(a0, b1, c01); c02 = fma(a0, b2, c02); c03 = fma(a0, b3, c03);
    const a1 = v128.load32_splat(a, 4);
    c10 = fma(a1, b0, c10); c11 = fma(a1, b1, c11); c12 = fma(a1, b2, c12); c13 = fma(a1, b3, c13);
    const a2 = v128.load32_splat(a, 8);
    c20 = fma(a2, b0, c20); c21 = fma(a2, b1, c21); c22 = fma(a2, b2, c22); c23 = fma(a2, b3, c23);
    const a3 = v128.load32_splat(a, 12);
    c30 = fma(a3, b0, c30); c31 = fma(a3, b1, c31); c32 = fma(a3, b2, c32); c33 = fma(a3, b3, c33);
    a += 16;
    b += 64;
  }
  v128.store(y, c00); v128.store(y, c01, 16); v128.store(y, c02, 32); v128.store(y, c03, 48);
  v128.store(y, c10, 64); v128.store(y, c11, 80); v128.store(y, c12, 96); v128.store(y, c13, 112);
  v128.store(y, c20, 128); v128.store(y, c21, 144); v128.store(y, c22, 160); v128.store(y, c23, 176);
  v128.store(y, c30, 192); v128.store(y, c31, 208); v128.store(y, c32, 224); v128.store(y, c33, 240);
}

// args: x, y, k. As many multiply-adds as one unit of the tile does, from registers alone and stored apart from each
// other, so that nothing of it can become 256 bits wide: the speed the tile must beat.
export function selfTest_lanes_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  for (let unit = begin; unit < end; unit++) lanes(pointerAt(args, 0), pointerAt(args, 1), intAt(args, 2));
}

function lanes(x: usize, y: usize, k: i32): void {
  const u = v128.load(x);
  let a0 = u, a1 = u, a2 = u, a3 = u, a4 = u, a5 = u, a6 = u, a7 = u;
  for (let turns = k << 1; turns > 0; turns--) {
    a7 = fma(u, a6, a7); a6 = fma(u, a5, a6); a5 = fma(u, a4, a5); a4 = fma(u, a3, a4);
    a3 = fma(u, a2, a3); a2 = fma(u, a1, a2); a1 = fma(u, a0, a1); a0 = fma(u, u, a0);
  }
  v128.store(y, a0); v128.store(y, a1, 48); v128.store(y, a2, 96); v128.store(y, a3, 144);
  v128.store(y, a4, 192); v128.store(y, a5, 240); v128.store(y, a6, 288); v128.store(y, a7, 336);
}

// args: y, n, trapAt, value; scratch of 4,096 bytes. One unit is 1,024 elements: y[i] = value * i, by way of scratch
// memory, so that two threads in one scratch memory would show. The unit `trapAt` traps.
export function selfTest_units_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const y = pointerAt(args, 0);
  const n = intAt(args, 1);
  const value = floatAt(args, 3);
  for (let unit = begin; unit < end; unit++) {
    if (unit == intAt(args, 2)) unreachable();
    const from = unit << 10;
    const count = min(n - from, 1024);
    for (let i = 0; i < count; i++) store<f32>(scratch + ((<usize>i) << 2), value * <f32>(from + i));
    for (let i = 0; i < count; i++) {
      store<f32>(y + ((<usize>(from + i)) << 2), load<f32>(scratch + ((<usize>i) << 2)));
    }
  }
}
