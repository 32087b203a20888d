// Runs of a few floats, and the last one to three elements of one: loads and stores that touch no neighbour.

/** The first `count` (1 to 3) floats at p in the low lanes, zero in the others. */
export function loadLanes(p: usize, count: i32): v128 {
  if (count == 1) return v128.load32_zero(p);
  const pair = v128.load64_zero(p);
  if (count == 2) return pair;
  return v128.load32_lane(p, pair, 2, 8);
}

/** Writes the low `count` (1 to 3) lanes of x to p. */
export function storeLanes(p: usize, x: v128, count: i32): void {
  if (count == 1) { v128.store32_lane(p, x, 0); return; }
  v128.store64_lane(p, x, 0);
  if (count > 2) v128.store32_lane(p, x, 2, 8);
}

/** Four floats, or the first `count` of them. */
// @ts-ignore: decorator
@inline export function take(p: usize, count: i32): v128 {
  return count == 4 ? v128.load(p) : loadLanes(p, count);
}

/** Writes all lanes, or the low `count` of them. */
// @ts-ignore: decorator
@inline export function put(p: usize, x: v128, count: i32): void {
  if (count == 4) v128.store(p, x);
  else storeLanes(p, x, count);
}

/** The sum of the four lanes, (0 + 2) + (1 + 3). */
// @ts-ignore: decorator
@inline export function sumLanes(x: v128): f32 {
  const pairs = f32x4.add(x, i64x2.shuffle(x, x, 1, 0));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

/** The largest of the four lanes; NaN if one is. */
// @ts-ignore: decorator
@inline export function maxLanes(x: v128): f32 {
  const pairs = f32x4.max(x, i64x2.shuffle(x, x, 1, 0));
  return max<f32>(f32x4.extract_lane(pairs, 0), f32x4.extract_lane(pairs, 1));
}

/** Copies a row of floats, whose length is told in bytes: a call of memory.copy takes longer than a few of them do. */
export function copyRow(to: usize, from: usize, bytes: usize): void {
  let i: usize = 0;
  for (; i + 64 <= bytes; i += 64) {
    const a = v128.load(from + i), b = v128.load(from + i, 16), c = v128.load(from + i, 32), d = v128.load(from + i, 48);
    v128.store(to + i, a);
    v128.store(to + i, b, 16);
    v128.store(to + i, c, 32);
    v128.store(to + i, d, 48);
  }
  for (; i < bytes; i += 4) store<f32>(to + i, load<f32>(from + i));
}
