// The largest number so far along time, per head: its course, by how much each token raises it, and its end.
import { loadLanes, maxLanes } from "../../../device/wasm/kernels/lanes.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

function largest(row: usize, width: i32): f32 {
  let most = f32x4.splat(-Infinity);
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4) most = f32x4.max(most, v128.load(row + (<usize>j << 2)));
  let result = maxLanes(most);
  for (; j < width; j++) result = max<f32>(result, load<f32>(row + (<usize>j << 2)));
  return result;
}

// args: x, initial, cuSeqlens, course, rise, kept, final; ints: flags (1 initial, 2 packed, 4 whole), time, heads,
// width, row, sequences; floats: floor. One unit is one head of one sequence. `rise` is what came before minus what is now, `kept`
// the same from the beginning to the end; with `whole` the course is the end everywhere.
export function performer_runningMaximum_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const flags = intAt(args, 7);
  const time = intAt(args, 8);
  const heads = intAt(args, 9);
  const width = intAt(args, 10);
  const stride = intAt(args, 11);
  const floor = floatAt(args, 13);
  for (let unit = begin; unit < end; unit++) {
    const n = unit / heads;
    const head = unit % heads;
    const at = <usize>unit << 2;
    const lengths = pointerAt(args, 2) + (<usize>n << 2);
    const from = flags & 2 ? load<i32>(lengths) : n * time;
    const to = flags & 2 ? load<i32>(lengths, 4) : from + time;
    const start: f32 = flags & 1 ? load<f32>(pointerAt(args, 1) + at) : -Infinity;
    let most = start;
    for (let row = from; row < to; row++) {
      const x = pointerAt(args, 0) + ((<usize>row * <usize>stride + <usize>(head * width)) << 2);
      const place = <usize>(row * heads + head) << 2;
      const next = max<f32>(most, largest(x, width));
      store<f32>(pointerAt(args, 4) + place, most == -Infinity ? 0 : max<f32>(most - next, floor));
      store<f32>(pointerAt(args, 3) + place, next);
      most = next;
    }
    store<f32>(pointerAt(args, 6) + at, most);
    store<f32>(pointerAt(args, 5) + at, start == -Infinity ? 0 : max<f32>(start - most, floor));
    if (!(flags & 4)) continue;
    for (let row = from; row < to; row++) store<f32>(pointerAt(args, 3) + (<usize>(row * heads + head) << 2), most);
  }
}
