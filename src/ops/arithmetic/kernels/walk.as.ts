// Where two operands stand while a third is written row by row. Scratch: 5 outer indices (word 5 unused), then the byte
// addresses of the current row of a (word 6) and of b (word 7).
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** Finds element `at`: sets indices and row addresses, returns its column. */
export function beginWalk(args: usize, at: i32, scratch: usize): i32 {
  let a = pointerAt(args, 0);
  let b = pointerAt(args, 1);
  const inner = intAt(args, 9);
  const column = at % inner;
  let rest = at / inner;
  for (let axis = 4; axis >= 0; axis--) {
    const length = intAt(args, 4 + axis);
    const i = rest % length;
    rest /= length;
    store<i32>(scratch + ((<usize>axis) << 2), i);
    a += (<usize>(i * intAt(args, 10 + axis))) << 2;
    b += (<usize>(i * intAt(args, 16 + axis))) << 2;
  }
  store<u32>(scratch, <u32>a, 24);
  store<u32>(scratch, <u32>b, 28);
  return column;
}

/** Steps both operands to the next row. */
export function nextRow(args: usize, scratch: usize): void {
  let a = pointerAt(scratch, 6);
  let b = pointerAt(scratch, 7);
  for (let axis = 4; axis >= 0; axis--) {
    const i = load<i32>(scratch + ((<usize>axis) << 2)) + 1;
    const length = intAt(args, 4 + axis);
    const aStride = intAt(args, 10 + axis), bStride = intAt(args, 16 + axis);
    a += (<usize>aStride) << 2;
    b += (<usize>bStride) << 2;
    if (i < length) {
      store<i32>(scratch + ((<usize>axis) << 2), i);
      break;
    }
    store<i32>(scratch + ((<usize>axis) << 2), 0);
    a -= (<usize>(length * aStride)) << 2;
    b -= (<usize>(length * bStride)) << 2;
  }
  store<u32>(scratch, <u32>a, 24);
  store<u32>(scratch, <u32>b, 28);
}
