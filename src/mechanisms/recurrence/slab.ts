/** Carried state of many sequences side by side: one slab `[slots, ...]` a part, a slot for every sequence. */
import { empty, type Tensor } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { packed } from "../../ops/contiguous/index.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

const pieceLength = 16_384;

function host(into: boolean): HostKernel {
  return (buffers, ints) => {
    const [slab, slots, rows] = buffers as [TypedArray, TypedArray, TypedArray];
    const [width, count] = ints as [number, number];
    for (let row = 0; row < count; row++) {
      for (let i = 0; i < width; i++) {
        if (into) slab[slots[row]! * width + i] = rows[row * width + i]!;
        else rows[row * width + i] = slab[slots[row]! * width + i]!;
      }
    }
  };
}

const takeKernel: Kernel = { key: "recurrence.slab.take", host: host(false) };
const putKernel: Kernel = { key: "recurrence.slab.put", host: host(true) };

function move(kernel: Kernel, slab: Tensor, slots: Tensor, rows: Tensor): void {
  const width = slab.size / Math.max(1, slab.shape[0]!);
  if (rows.size === 0) return;
  slab.device.run({
    kernel,
    buffers: [slab.layout, packed(slots).layout, rows.layout],
    ints: [width, slots.size],
    floats: [],
    units: slots.size * Math.ceil(width / pieceLength),
    work: rows.size,
    scratchBytes: 0,
  });
}

/** Rows `[N, ...]` of a slab `[slots, ...]`, row n from `slots[n]` (int32 `[N]`). A copy without history. */
export function takeSlots(slab: Tensor, slots: Tensor): Tensor {
  const rows = empty(slab.device, [slots.size, ...slab.shape.slice(1)], { dtype: slab.dtype });
  move(takeKernel, packed(slab), slots, rows);
  return rows;
}

/** Writes row n of `rows [N, ...]` to slot `slots[n]` of the slab; slots differ from each other. */
export function putSlots(slab: Tensor, slots: Tensor, rows: Tensor): void {
  move(putKernel, slab, slots, packed(rows));
}
