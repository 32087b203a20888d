// Shared vocabulary of every kernel: four float32 lanes, one multiply-add whose rounding is the tier's.
// TIER is a build constant: 0 plain SIMD, 1 relaxed SIMD (fused multiply-add), 2 relaxed SIMD laid out for 256-bit pairs.

/** a * b + c in each lane: fused on tiers B and C, rounded twice on tier A. */
// @ts-ignore: decorator
@inline export function fma(a: v128, b: v128, c: v128): v128 {
  if (TIER > 0) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/** The i-th 4-byte word of an argument block, as a byte address. */
// @ts-ignore: decorator
@inline export function pointerAt(args: usize, i: i32): usize {
  return <usize>load<u32>(args + ((<usize>i) << 2));
}

/** The i-th 4-byte word of an argument block, as an integer. */
// @ts-ignore: decorator
@inline export function intAt(args: usize, i: i32): i32 {
  return load<i32>(args + ((<usize>i) << 2));
}

/** The i-th 4-byte word of an argument block, as a float. */
// @ts-ignore: decorator
@inline export function floatAt(args: usize, i: i32): f32 {
  return load<f32>(args + ((<usize>i) << 2));
}
