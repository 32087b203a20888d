/** Distance from one to the next number of each computing dtype. */
export const epsilon = { float32: 2 ** -23, float64: 2 ** -52 } as const;

/**
 * What a sum of so many terms may be off by, as relative root mean square: 8·eps·sqrt(terms).
 *
 * One rounding is at most eps/2; over n of them errors of either sign grow as sqrt(n). The factor leaves room for
 * functions that are a few roundings deep.
 */
export function tolerance(dtype: keyof typeof epsilon, terms: number): number {
  return 8 * epsilon[dtype] * Math.sqrt(terms);
}

/**
 * ‖got − expected‖ / ‖expected‖. Infinite where one holds NaN, an infinity or a zero-length axis that the other does
 * not; numbers beyond float32 count as infinite.
 */
export function relativeError(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (got.length !== expected.length) return Number.POSITIVE_INFINITY;
  let error = 0;
  let size = 0;
  for (let i = 0; i < got.length; i++) {
    const wanted = Math.fround(expected[i]!);
    if (!Number.isFinite(wanted) || !Number.isFinite(got[i]!)) {
      if (!Object.is(wanted, got[i]!)) return Number.POSITIVE_INFINITY;
      continue;
    }
    error += (got[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  if (size === 0) return error === 0 ? 0 : Number.POSITIVE_INFINITY;
  return Math.sqrt(error / size);
}
