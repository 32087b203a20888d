import { intAt, pointerAt } from "../../device/wasm/kernels/simd.as";

// args: value, target; size, contiguous, 6 lengths, 6 strides of the value. One unit is 4,096 elements of the target.

// @ts-ignore: decorator
@inline function put(target: usize, value: usize, add: bool): void {
  if (add) store<f32>(target, load<f32>(target) + load<f32>(value));
  else store<u32>(target, load<u32>(value));
}

// @ts-ignore: decorator
@inline function putRun(target: usize, value: usize, count: i32, add: bool): void {
  let i = 0;
  for (; i + 4 <= count; i += 4) {
    const at = (<usize>i) << 2;
    const x = v128.load(value + at);
    v128.store(target + at, add ? f32x4.add(v128.load(target + at), x) : x);
  }
  for (; i < count; i++) put(target + ((<usize>i) << 2), value + ((<usize>i) << 2), add);
}

// @ts-ignore: decorator
@inline function move(args: usize, begin: i32, end: i32, add: bool): void {
  const value = pointerAt(args, 0);
  const target = pointerAt(args, 1);
  const size = intAt(args, 2);
  let at = begin << 12;
  const to = min(end << 12, size);
  if (intAt(args, 3) != 0) {
    putRun(target + ((<usize>at) << 2), value + ((<usize>at) << 2), to - at, add);
    return;
  }
  const inner = intAt(args, 9);
  const step = (<usize>intAt(args, 15)) << 2;
  while (at < to) {
    // Position of element `at` along each axis, from the innermost outwards.
    let rest = at;
    let from: usize = 0;
    let column = 0;
    for (let axis = 5; axis >= 0; axis--) {
      const length = intAt(args, 4 + axis);
      const index = rest % length;
      rest /= length;
      if (axis == 5) column = index;
      from += (<usize>(index * intAt(args, 10 + axis))) << 2;
    }
    const run = min(inner - column, to - at);
    const source = value + from;
    const destination = target + ((<usize>at) << 2);
    if (step == 4) putRun(destination, source, run, add);
    else for (let i = 0; i < run; i++) put(destination + ((<usize>i) << 2), source + (<usize>i) * step, add);
    at += run;
  }
}

export function accumulate_add_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, true);
}

export function accumulate_copy_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, false);
}
