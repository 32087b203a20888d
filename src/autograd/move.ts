import type { HostKernel, Kernel } from "../device/device.ts";
import { ShapeError } from "../errors.ts";
import type { TypedArray } from "../tensor/dtype.ts";
import type { Tensor } from "./tensor.ts";

const maximumRank = 6;

/** buffers: value, target. ints: size, 6 lengths, 6 strides of the value, 6 strides of the target. */
function walk(put: (target: TypedArray, to: number, value: number) => void): HostKernel {
  return (buffers, ints) => {
    const [value, target] = buffers as [TypedArray, TypedArray];
    const index = new Array<number>(maximumRank).fill(0);
    let from = 0;
    let to = 0;
    for (let i = 0; i < ints[0]!; i++) {
      put(target, to, value[from]!);
      for (let axis = maximumRank - 1; axis >= 0; axis--) {
        const length = ints[1 + axis]!;
        from += ints[7 + axis]!;
        to += ints[13 + axis]!;
        if (++index[axis]! < length) break;
        from -= length * ints[7 + axis]!;
        to -= length * ints[13 + axis]!;
        index[axis] = 0;
      }
    }
  };
}

const addKernel: Kernel = {
  key: "move.add.forward",
  host: walk((target, to, value) => {
    target[to]! += value;
  }),
};
const copyKernel: Kernel = {
  key: "move.copy.forward",
  host: walk((target, to, value) => {
    target[to] = value;
  }),
};

/** target += value, both of one shape and any strides. */
export function accumulate(target: Tensor, value: Tensor): void {
  move(addKernel, target, value);
}

/** target = value, both of one shape and any strides. */
export function copyInto(target: Tensor, value: Tensor): void {
  move(copyKernel, target, value);
}

function move(kernel: Kernel, target: Tensor, value: Tensor): void {
  if (target.size === 0) return;
  target.device.run({
    kernel,
    buffers: [value.layout, target.layout],
    ints: [target.size, ...coarsest(kernel.key, target, value)],
    floats: [],
    units: Math.ceil(target.size / 4096),
    work: target.size,
    scratchBytes: 64,
  });
}

/** Lengths and both strides with neighbouring axes joined wherever both layouts run on, padded in front to six axes. */
function coarsest(who: string, target: Tensor, value: Tensor): number[] {
  const lengths: number[] = [];
  const valueStrides: number[] = [];
  const targetStrides: number[] = [];
  for (let axis = 0; axis < target.rank; axis++) {
    const length = target.shape[axis]!;
    if (length === 1) continue;
    const valueStride = value.layout.strides[axis]!;
    const targetStride = target.layout.strides[axis]!;
    const last = lengths.length - 1;
    if (
      last >= 0 &&
      valueStrides[last] === length * valueStride &&
      targetStrides[last] === length * targetStride
    ) {
      lengths[last]! *= length;
      valueStrides[last] = valueStride;
      targetStrides[last] = targetStride;
    } else {
      lengths.push(length);
      valueStrides.push(valueStride);
      targetStrides.push(targetStride);
    }
  }
  const missing = maximumRank - lengths.length;
  if (missing < 0)
    throw new ShapeError(`[${who}] at most ${maximumRank} axes that cannot be joined, got ${lengths.length}`);
  const pad = (list: number[], value: number): number[] => [
    ...new Array<number>(missing).fill(value),
    ...list,
  ];
  return [...pad(lengths, 1), ...pad(valueStrides, 0), ...pad(targetStrides, 0)];
}
