import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { blockRows, packColumns, packRows, panels, seed } from "./panels.as";

// C[b, i, j] (= or +=) sum over p of A[b, i, p] B[b, p, j] (+ bias[j]): one ascending chain per element, started from 0,
// from bias or from C. A unit is one block of rows by columns; consecutive units share what was packed for a column block.

// args: a, b, c, bias, then the words below; strides in elements. Word 7 counts the batch, which is outer x INNER.
const M = 4, N = 5, K = 6, INNER = 8;
const A_OUTER = 9, A_INNER = 10, A_ROW = 11, A_STEP = 12;
const B_OUTER = 13, B_INNER = 14, B_STEP = 15, B_COL = 16;
const C_OUTER = 17, C_INNER = 18, C_ROW = 19;
const ACCUMULATE = 20, BIAS = 21;
// Plan: rows and columns of a unit, steps of the inner axis at a time, whether A (columns contiguous) is turned into rows,
// and whether B goes into panels: 0 no, 1 its rows are contiguous, 2 its columns are.
const ROWS = 22, COLS = 23, STEPS = 24, PACK_A = 25, PACK_B = 26;

// @ts-ignore: decorator
@inline function strideAt(args: usize, i: i32): usize {
  return (<usize>intAt(args, i)) << 2;
}

export function matmul_strided_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const rowBlocks = (intAt(args, M) + intAt(args, ROWS) - 1) / intAt(args, ROWS);
  const colBlocks = (intAt(args, N) + intAt(args, COLS) - 1) / intAt(args, COLS);
  for (let unit = begin; unit < end; ) {
    const row = unit % rowBlocks;
    const rest = unit / rowBlocks;
    const count = min(rowBlocks - row, end - unit);
    columnBlock(args, rest / colBlocks, rest % colBlocks, row, row + count, scratch);
    unit += count;
  }
}

/** Row blocks [first, last) of one column block of one batch entry. */
function columnBlock(args: usize, batch: i32, block: i32, first: i32, last: i32, scratch: usize): void {
  const inner = intAt(args, INNER);
  const outer = <usize>(batch / inner), local = <usize>(batch % inner);
  const j = <usize>block * <usize>intAt(args, COLS);
  const cols = min(intAt(args, COLS), intAt(args, N) - <i32>j);
  const from = first * intAt(args, ROWS), to = min(last * intAt(args, ROWS), intAt(args, M));
  const k = intAt(args, K), steps = intAt(args, STEPS);
  const packA = intAt(args, PACK_A), packB = intAt(args, PACK_B);
  const aRow = strideAt(args, A_ROW), aStep = strideAt(args, A_STEP);
  const bStep = strideAt(args, B_STEP), bCol = strideAt(args, B_COL);
  const cRow = strideAt(args, C_ROW);
  const a = pointerAt(args, 0) + outer * strideAt(args, A_OUTER) + local * strideAt(args, A_INNER);
  const b = pointerAt(args, 1) + outer * strideAt(args, B_OUTER) + local * strideAt(args, B_INNER) + j * bCol;
  const c = pointerAt(args, 2) + outer * strideAt(args, C_OUTER) + local * strideAt(args, C_INNER) + (j << 2);
  const bias = intAt(args, BIAS) ? pointerAt(args, 3) + (j << 2) : 0;
  const accumulate = intAt(args, ACCUMULATE);
  const panelStride = <usize>steps << 6;
  const packedA = scratch + panelStride * ((<usize>cols + 15) >> 4);
  const packedRow = ((<usize>steps) << 2) + 64;
  let p: i32 = 0;
  do {
    const depth = min(steps, k - p);
    const bAt = b + <usize>p * bStep;
    if (packB == 1) packRows(cols, depth, bAt, bStep, scratch, panelStride);
    if (packB == 2) packColumns(cols, depth, bAt, bCol, scratch, panelStride);
    for (let i = from; i < to; ) {
      const rows = blockRows(to - i);
      const cAt = c + <usize>i * cRow;
      let aAt = a + <usize>i * aRow + <usize>p * aStep;
      let row = aRow, step = aStep;
      if (p == 0 && bias) seed(rows, cols, cAt, cRow, bias, accumulate);
      const mode = i32(p > 0 || bias || accumulate);
      if (packA) {
        transposeBlock(depth, rows, aAt, aStep, packedA, packedRow);
        aAt = packedA;
        row = packedRow;
        step = 4;
      }
      if (packB) panels(rows, cols, depth, aAt, row, step, scratch, panelStride, cAt, cRow, mode);
      else gemmBlock(rows, cols, depth, aAt, row, step, bAt, bStep, cAt, cRow, mode);
      i += rows;
    }
    p += depth;
  } while (p < k);
}
