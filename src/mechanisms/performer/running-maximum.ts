import { rowsOf } from "../../autograd/rows.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { packed } from "../../ops/contiguous/index.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** exp of it is 0 in float32 and no more than a trace in float64; sums of it stay finite. */
const floor = -700;
const flagBits = { initial: 1, packed: 2, whole: 4 } as const;

const host: HostKernel = (buffers, ints) => {
  const [x, initial, cuSeqlens, course, rise, kept, final] = buffers as TypedArray[] & { length: 7 };
  const [flags, time, heads, width, stride, count] = ints as [number, number, number, number, number, number];
  const isPacked = (flags & flagBits.packed) !== 0;
  for (let unit = 0; unit < count * heads; unit++) {
    const [n, head] = [Math.floor(unit / heads), unit % heads];
    const [from, to] = isPacked ? [cuSeqlens![n]!, cuSeqlens![n + 1]!] : [n * time, (n + 1) * time];
    const start = flags & flagBits.initial ? initial![unit]! : Number.NEGATIVE_INFINITY;
    let most = start;
    for (let row = from; row < to; row++) {
      let next = most;
      for (let i = 0; i < width; i++) next = Math.max(next, x![row * stride + head * width + i]!);
      rise![row * heads + head] = most === Number.NEGATIVE_INFINITY ? 0 : Math.max(most - next, floor);
      course![row * heads + head] = next;
      most = next;
    }
    final![unit] = most;
    kept![unit] = start === Number.NEGATIVE_INFINITY ? 0 : Math.max(start - most, floor);
    if ((flags & flagBits.whole) === 0) continue;
    for (let row = from; row < to; row++) course![row * heads + head] = most;
  }
};

const kernel: Kernel = { key: "performer.runningMaximum.forward", host };

/** The course of a maximum over time. */
export interface RunningMaximum {
  /** `[B, T, H]`: the largest so far, the token itself included. */
  readonly course: Tensor;
  /** `[B, T, H]`, <= 0: what it was before the token minus what it is; 0 where there was nothing before. */
  readonly rise: Tensor;
  /** `[N, H]`, <= 0: the same from the beginning to the end. */
  readonly kept: Tensor;
  /** `[N, H]`; −Infinity where nothing was seen. */
  readonly final: Tensor;
}

/** How the maximum runs. */
export interface RunningMaximumOptions {
  /** `[N, H]`: where it begins, −Infinity for nothing. */
  readonly initial?: Tensor | undefined;
  readonly cuSeqlens?: Tensor | undefined;
  /** The course is the end everywhere: every token sees all. */
  readonly whole?: boolean;
}

/** The largest of `x [B, T, H, F]` over F and over time so far, sequence by sequence. It has no gradient. */
export function runningMaximum(x: Tensor, options: RunningMaximumOptions = {}): RunningMaximum {
  const [B, T, H, F] = x.shape as [number, number, number, number];
  const { initial, cuSeqlens, whole = false } = options;
  const count = cuSeqlens === undefined ? B : cuSeqlens.size - 1;
  const create = (shape: readonly number[]): Tensor => empty(x.device, shape, { dtype: x.dtype });
  const [course, rise] = [create([B, T, H]), create([B, T, H])];
  const [kept, final] = [create([count, H]), create([count, H])];
  const rows = rowsOf(x, 2);
  const flags =
    (initial === undefined ? 0 : flagBits.initial) |
    (cuSeqlens === undefined ? 0 : flagBits.packed) |
    (whole ? flagBits.whole : 0);
  const none = course.layout;
  const buffers = [
    rows.slice,
    initial === undefined ? none : packed(initial).layout,
    cuSeqlens?.layout ?? none,
  ];
  x.device.run({
    kernel,
    buffers: [...buffers, course.layout, rise.layout, kept.layout, final.layout],
    ints: [flags, T, H, F, rows.stride, count],
    floats: [floor],
    units: count * H,
    work: x.size / 2,
    scratchBytes: 0,
  });
  return { course, rise, kept, final };
}
