import { intAt, pointerAt } from "./simd.as";
import { gemmBlock, gemmLower, gemmLowerLeft, gemmUpperLeft, transposeBlock } from "./generated/tile.as";

// The block products as jobs of their own, for checks: everybody else calls them from inside a kernel.

// args: a, b, c, then which (0 gemmBlock, 1 gemmLower, 2 gemmLowerLeft, 3 gemmUpperLeft), m, n, k, aRow, aInner, bRow, cRow
// in floats, mode. One unit.
export function block_product_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = pointerAt(args, 0), b = pointerAt(args, 1), c = pointerAt(args, 2);
  const which = intAt(args, 3), m = intAt(args, 4), n = intAt(args, 5), k = intAt(args, 6), mode = intAt(args, 11);
  const aRow = (<usize>intAt(args, 7)) << 2, aInner = (<usize>intAt(args, 8)) << 2;
  const bRow = (<usize>intAt(args, 9)) << 2, cRow = (<usize>intAt(args, 10)) << 2;
  if (which == 0) gemmBlock(m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode);
  else if (which == 1) gemmLower(m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode);
  else if (which == 2) gemmLowerLeft(m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode);
  else gemmUpperLeft(m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode);
}

// args: source, target, then rows, columns, their row strides in floats. One unit.
export function block_transpose_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const srcRow = (<usize>intAt(args, 4)) << 2, dstRow = (<usize>intAt(args, 5)) << 2;
  transposeBlock(intAt(args, 2), intAt(args, 3), pointerAt(args, 0), srcRow, pointerAt(args, 1), dstRow);
}
