import type { TypedArray } from "../tensor/dtype.ts";

const maximumRank = 6;

/** Calls `visit(i, j)` for row-major position i of the shape and its storage position j under the strides. */
function walk(ints: readonly number[], visit: (i: number, j: number) => void): void {
  const size = ints[0]!;
  const shape = ints.slice(2, 2 + maximumRank);
  const strides = ints.slice(2 + maximumRank, 2 + 2 * maximumRank);
  const index = new Array<number>(maximumRank).fill(0);
  let from = 0;
  for (let i = 0; i < size; i++) {
    visit(i, from);
    for (let axis = maximumRank - 1; axis >= 0; axis--) {
      from += strides[axis]!;
      if (++index[axis]! < shape[axis]!) break;
      from -= index[axis]! * strides[axis]!;
      index[axis] = 0;
    }
  }
}

/** buffers: value, target. ints: size, contiguous, 6 lengths, 6 strides. */
export const accumulateHost = {
  add(buffers: readonly TypedArray[], ints: readonly number[]): void {
    const [value, target] = buffers as [TypedArray, TypedArray];
    walk(ints, (i, j) => {
      target[i]! += value[j]!;
    });
  },
  copy(buffers: readonly TypedArray[], ints: readonly number[]): void {
    const [value, target] = buffers as [TypedArray, TypedArray];
    walk(ints, (i, j) => {
      target[i] = value[j]!;
    });
  },
};
