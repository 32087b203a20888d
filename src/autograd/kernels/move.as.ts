import { intAt, pointerAt } from "../../device/wasm/kernels/simd.as";

// args: value, target; size, 6 lengths, 6 strides of the value, 6 strides of the target. Lengths are the coarsest that
// the layouts allow: the innermost axis is the longest run. One unit is 4,096 elements in row-major order.

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
@inline function move(args: usize, begin: i32, end: i32, index: usize, add: bool): void {
  let value = pointerAt(args, 0);
  let target = pointerAt(args, 1);
  let at = begin << 12;
  const to = min(end << 12, intAt(args, 2));
  let rest = at;
  for (let axis = 5; axis >= 0; axis--) {
    const length = intAt(args, 3 + axis);
    const i = rest % length;
    rest /= length;
    store<i32>(index + ((<usize>axis) << 2), i);
    value += (<usize>(i * intAt(args, 9 + axis))) << 2;
    target += (<usize>(i * intAt(args, 15 + axis))) << 2;
  }
  const inner = intAt(args, 8);
  const valueStep = intAt(args, 14) << 2;
  const targetStep = intAt(args, 20) << 2;
  let column = load<i32>(index, 20);
  while (at < to) {
    const run = min(inner - column, to - at);
    if (valueStep == 4 && targetStep == 4) putRun(target, value, run, add);
    else for (let i = 0; i < run; i++) put(target + <usize>(i * targetStep), value + <usize>(i * valueStep), add);
    at += run;
    value -= <usize>(column * valueStep);
    target -= <usize>(column * targetStep);
    column = 0;
    for (let axis = 4; axis >= 0; axis--) {
      const i = load<i32>(index + ((<usize>axis) << 2)) + 1;
      const length = intAt(args, 3 + axis);
      value += (<usize>intAt(args, 9 + axis)) << 2;
      target += (<usize>intAt(args, 15 + axis)) << 2;
      if (i < length) {
        store<i32>(index + ((<usize>axis) << 2), i);
        break;
      }
      value -= (<usize>(length * intAt(args, 9 + axis))) << 2;
      target -= (<usize>(length * intAt(args, 15 + axis))) << 2;
      store<i32>(index + ((<usize>axis) << 2), 0);
    }
  }
}

export function move_add_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, scratch, true);
}

export function move_copy_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, scratch, false);
}
