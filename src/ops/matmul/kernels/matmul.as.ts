import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { packColumns, packRows } from "./panels.as";

// C[b, i, j] (= or +=) sum over p of A[b, i, p] B[b, p, j] (+ bias[j]): one ascending chain per element, started from 0,
// from bias or from C. A unit is one block of rows by columns; consecutive units share what was packed for a column block.

// args: a, b, c, bias, then the words below; strides in elements, a batch is outer x inner.
const M = 4, N = 5, K = 6, INNER = 7;
const A_OUTER = 8, A_INNER = 9, A_ROW = 10, A_STEP = 11;
const B_OUTER = 12, B_INNER = 13, B_STEP = 14, B_COL = 15;
const C_OUTER = 16, C_INNER = 17, C_ROW = 18;
const ACCUMULATE = 19, BIAS = 20;
// Plan: rows and columns of a unit, steps of the inner axis packed at a time, which operands are packed.
const ROWS = 21, COLS = 22, STEPS = 23, PACK_A = 24, PACK_B = 25;

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
  const height = intAt(args, ROWS);
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
    for (let r = first; r < last; r++) {
      const i = r * height;
      const rows = min(height, intAt(args, M) - i);
      const cAt = c + <usize>i * cRow;
      let aAt = a + <usize>i * aRow + <usize>p * aStep;
      let row = aRow, step = aStep;
      if (p == 0 && bias) seed(rows, cols, cAt, cRow, bias, accumulate);
      const mode = i32(p > 0 || bias || accumulate);
      if (packA) {
        if (packA == 1) copyRows(rows, depth, aAt, aRow, packedA, packedRow);
        else transposeBlock(depth, rows, aAt, aStep, packedA, packedRow);
        aAt = packedA;
        row = packedRow;
        step = 4;
      }
      if (packB) panels(rows, cols, depth, aAt, row, step, scratch, panelStride, cAt, cRow, mode);
      else gemmBlock(rows, cols, depth, aAt, row, step, bAt, bStep, cAt, cRow, mode);
    }
    p += depth;
  } while (p < k);
}

/** One block of rows against panels of 16 columns. */
export function panels(m: i32, n: i32, k: i32, a: usize, aRow: usize, aStep: usize, b: usize, stride: usize, c: usize, cRow: usize, mode: i32): void {
  for (; n > 0; n -= 16) {
    gemmBlock(m, min(n, 16), k, a, aRow, aStep, b, 64, c, cRow, mode);
    b += stride;
    c += 64;
  }
}

/** Starts each row of C from the bias, added to what is there when accumulating. */
export function seed(m: i32, n: i32, c: usize, cRow: usize, bias: usize, accumulate: i32): void {
  for (let i: i32 = 0; i < m; i++) {
    if (!accumulate) {
      memory.copy(c, bias, (<usize>n) << 2);
    } else {
      for (let j: i32 = 0; j < n; j++) {
        const at = c + ((<usize>j) << 2);
        store<f32>(at, load<f32>(at) + load<f32>(bias + ((<usize>j) << 2)));
      }
    }
    c += cRow;
  }
}

export function copyRows(m: i32, k: i32, from: usize, fromRow: usize, to: usize, toRow: usize): void {
  for (let i: i32 = 0; i < m; i++) memory.copy(to + <usize>i * toRow, from + <usize>i * fromRow, (<usize>k) << 2);
}
