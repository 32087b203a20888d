import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { blockRows, packColumns, packRows, panels, seed } from "./panels.as";

// Weights [out, in] as panels of 16 outputs: packed[q][p][j] = w[16 q + j, p], the last panel padded with zeros.

// args: w, packed, then out, in, row stride and column stride of w in elements. A unit is one panel.
export function matmul_pack_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 2), k = intAt(args, 3);
  const row = (<usize>intAt(args, 4)) << 2, col = (<usize>intAt(args, 5)) << 2;
  for (let q = begin; q < end; q++) {
    const to = pointerAt(args, 1) + (<usize>q * <usize>k << 6);
    const from = pointerAt(args, 0) + ((<usize>q) << 4) * row;
    const width = min(16, n - (q << 4));
    if (width < 16) memory.fill(to, 0, (<usize>k) << 6);
    if (col == 4) packColumns(width, k, from, row, to, 0);
    else packRows(width, k, from, col, to, 0);
  }
}

// Y[i, j] (= or +=) sum over p of X[i, p] W[j, p] (+ bias[j]), X of m rows.
// args: x, packed, y, bias, then m, out, in, row stride of x, row stride of y (elements), accumulate, bias given,
// and the plan: rows and columns of a unit (columns a multiple of 16), steps of the inner axis at a time.
export function matmul_packed_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const height = intAt(args, 11);
  const rowBlocks = (intAt(args, 4) + height - 1) / height;
  for (let unit = begin; unit < end; ) {
    const row = unit % rowBlocks;
    const count = min(rowBlocks - row, end - unit);
    packedColumns(args, unit / rowBlocks, row, row + count);
    unit += count;
  }
}

function packedColumns(args: usize, block: i32, first: i32, last: i32): void {
  const k = intAt(args, 6);
  const xRow = (<usize>intAt(args, 7)) << 2, yRow = (<usize>intAt(args, 8)) << 2;
  const accumulate = intAt(args, 9), height = intAt(args, 11), width = intAt(args, 12), steps = intAt(args, 13);
  const end = min(last * height, intAt(args, 4));
  const j = <usize>block * <usize>width;
  const cols = min(width, intAt(args, 5) - <i32>j);
  const stride = (<usize>k) << 6;
  const panel = pointerAt(args, 1) + (j >> 4) * stride;
  const y = pointerAt(args, 2) + (j << 2);
  const bias = intAt(args, 10) ? pointerAt(args, 3) + (j << 2) : 0;
  let p: i32 = 0;
  do {
    const depth = min(steps, k - p);
    const at = panel + ((<usize>p) << 6);
    for (let i = first * height; i < end; ) {
      const rows = blockRows(end - i);
      const to = y + <usize>i * yRow;
      const from = pointerAt(args, 0) + <usize>i * xRow + ((<usize>p) << 2);
      if (p == 0 && bias) seed(rows, cols, to, yRow, bias, accumulate);
      const mode = i32(p > 0 || bias || accumulate);
      panels(rows, cols, depth, from, xRow, 4, at, stride, to, yRow, mode);
      i += rows;
    }
    p += depth;
  } while (p < k);
}
