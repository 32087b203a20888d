// Rows of a slab by their slots: what sequences carry is read from and written to wherever it lies. Slots differ.
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** One unit is 16,384 elements of one row. */
// @ts-ignore: decorator
@inline const PIECE: i32 = 16384;

// @ts-ignore: decorator
@inline function move(args: usize, begin: i32, end: i32, into: bool): void {
  const width = intAt(args, 3);
  const pieces = (width + PIECE - 1) / PIECE;
  for (let unit = begin; unit < end; unit++) {
    const row = unit / pieces;
    const from = (unit % pieces) * PIECE;
    const bytes = (<usize>min(PIECE, width - from)) << 2;
    const slot = load<i32>(pointerAt(args, 1) + ((<usize>row) << 2));
    const slab = pointerAt(args, 0) + ((<usize>slot * <usize>width + <usize>from) << 2);
    const rows = pointerAt(args, 2) + ((<usize>row * <usize>width + <usize>from) << 2);
    if (into) memory.copy(slab, rows, bytes);
    else memory.copy(rows, slab, bytes);
  }
}

// args: slab, slots, rows, width.
export function recurrence_slab_take(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, false);
}

// args: slab, slots, rows, width.
export function recurrence_slab_put(args: usize, begin: i32, end: i32, scratch: usize): void {
  move(args, begin, end, true);
}
