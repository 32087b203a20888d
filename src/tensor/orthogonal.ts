/**
 * Makes `count` vectors of `length` float64 numbers, one after the other in `rows`, orthonormal in place: the Q of a
 * QR decomposition whose R has a positive diagonal, so that Gaussian rows become uniformly distributed rotations.
 *
 * Gram-Schmidt against four finished rows at a time, repeated while a row loses much of its length ("twice is enough",
 * W. Kahan in B. Parlett, The Symmetric Eigenvalue Problem, §6.9). Needs count <= length and independent rows.
 * Cost: 2 count² length multiply-adds and less than as much again.
 */
export function orthonormalize(rows: Float64Array, count: number, length: number): void {
  for (let row = 0; row < count; row++) {
    const vector = rows.subarray(row * length, (row + 1) * length);
    let before = 0;
    let after = norm(vector);
    do {
      before = after;
      let done = 0;
      for (; done + 4 <= row; done += 4) subtractFour(rows, done * length, vector);
      for (; done < row; done++) subtractOne(rows, done * length, vector);
      after = norm(vector);
    } while (after < 0.7 * before);
    for (let i = 0; i < length; i++) vector[i] = vector[i]! / after;
  }
}

function norm(vector: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < vector.length; i++) sum += vector[i]! * vector[i]!;
  return Math.sqrt(sum);
}

function subtractOne(rows: Float64Array, offset: number, vector: Float64Array): void {
  let dot = 0;
  for (let i = 0; i < vector.length; i++) dot += rows[offset + i]! * vector[i]!;
  for (let i = 0; i < vector.length; i++) vector[i] = vector[i]! - dot * rows[offset + i]!;
}

/** Four independent chains keep the multipliers busy where one would wait for its own sum. */
function subtractFour(rows: Float64Array, offset: number, vector: Float64Array): void {
  const { length } = vector;
  const second = offset + length;
  const third = second + length;
  const fourth = third + length;
  let [dot0, dot1, dot2, dot3] = [0, 0, 0, 0];
  for (let i = 0; i < length; i++) {
    const value = vector[i]!;
    dot0 += rows[offset + i]! * value;
    dot1 += rows[second + i]! * value;
    dot2 += rows[third + i]! * value;
    dot3 += rows[fourth + i]! * value;
  }
  for (let i = 0; i < length; i++) {
    const near = dot0 * rows[offset + i]! + dot1 * rows[second + i]!;
    vector[i] = vector[i]! - (near + (dot2 * rows[third + i]! + dot3 * rows[fourth + i]!));
  }
}
