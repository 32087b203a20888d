import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

// ids, weight [vocabulary, D], y [n, D]; ints: n, D, weight stride. One unit is 16 rows.
export function embedding_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const ids = pointerAt(args, 0);
  const weight = pointerAt(args, 1);
  const y = pointerAt(args, 2);
  const width = <usize>intAt(args, 4) << 2;
  const stride = <usize>intAt(args, 5) << 2;
  const last = min(end << 4, intAt(args, 3));
  for (let row = begin << 4; row < last; row++) {
    const from = weight + <usize>load<i32>(ids + ((<usize>row) << 2)) * stride;
    const to = y + <usize>row * width;
    let at: usize = 0;
    for (; at + 16 <= width; at += 16) v128.store(to + at, v128.load(from + at));
    for (; at < width; at += 4) store<f32>(to + at, load<f32>(from + at));
  }
}

// ids, dy [n, D], dWeight [vocabulary, D]; ints: n, D, dy stride, vocabulary. Unit u of 16 has the rows of the table
// whose number is u modulo 16, frequent ones among rare ones: each row is one chain of sums in the order of the tokens.
export function embedding_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const ids = pointerAt(args, 0), dy = pointerAt(args, 1), dWeight = pointerAt(args, 2);
  const n = intAt(args, 3), vocabulary = intAt(args, 6);
  const width = (<usize>intAt(args, 4)) << 2, stride = (<usize>intAt(args, 5)) << 2;
  for (let id = begin; id < vocabulary; id += 16) {
    memory.fill(dWeight + <usize>id * width, 0, <usize>min(end - begin, vocabulary - id) * width);
  }
  for (let row = 0; row < n; row++) {
    const id = load<i32>(ids + ((<usize>row) << 2));
    if (<u32>((id & 15) - begin) >= <u32>(end - begin)) continue;
    const sum = dWeight + <usize>id * width, grad = dy + <usize>row * stride;
    let at: usize = 0;
    for (; at + 16 <= width; at += 16) v128.store(sum + at, f32x4.add(v128.load(sum + at), v128.load(grad + at)));
    for (; at < width; at += 4) store<f32>(sum + at, load<f32>(sum + at) + load<f32>(grad + at));
  }
}
