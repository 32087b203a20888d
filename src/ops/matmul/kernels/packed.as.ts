import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { copyRows, panels, seed } from "./matmul.as";
import { packColumns, packRows } from "./panels.as";

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
// and the plan: rows and columns of a unit (columns a multiple of 16), steps of the inner axis at a time, copy x rows.
export function matmul_packed_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const height = intAt(args, 11);
  const rowBlocks = (intAt(args, 4) + height - 1) / height;
  for (let unit = begin; unit < end; ) {
    const row = unit % rowBlocks;
    const count = min(rowBlocks - row, end - unit);
    packedColumns(args, unit / rowBlocks, row, row + count, scratch);
    unit += count;
  }
}

function packedColumns(args: usize, block: i32, first: i32, last: i32, scratch: usize): void {
  const m = intAt(args, 4), k = intAt(args, 6);
  const xRow = (<usize>intAt(args, 7)) << 2, yRow = (<usize>intAt(args, 8)) << 2;
  const accumulate = intAt(args, 9), height = intAt(args, 11), width = intAt(args, 12), steps = intAt(args, 13);
  const copy = intAt(args, 14);
  const j = <usize>block * <usize>width;
  const cols = min(width, intAt(args, 5) - <i32>j);
  const stride = (<usize>k) << 6;
  const panel = pointerAt(args, 1) + (j >> 4) * stride;
  const y = pointerAt(args, 2) + (j << 2);
  const bias = intAt(args, 10) ? pointerAt(args, 3) + (j << 2) : 0;
  const copiedRow = ((<usize>steps) << 2) + 64;
  let p: i32 = 0;
  do {
    const depth = min(steps, k - p);
    const at = panel + ((<usize>p) << 6);
    for (let r = first; r < last; r++) {
      const i = r * height;
      const rows = min(height, m - i);
      const to = y + <usize>i * yRow;
      let from = pointerAt(args, 0) + <usize>i * xRow + ((<usize>p) << 2);
      if (p == 0 && bias) seed(rows, cols, to, yRow, bias, accumulate);
      const mode = i32(p > 0 || bias || accumulate);
      if (copy) {
        copyRows(rows, depth, from, xRow, scratch, copiedRow);
        from = scratch;
      }
      if (rows == 1) rowPanels(cols, depth, from, at, stride, to, mode);
      else panels(rows, cols, depth, from, copy ? copiedRow : xRow, 4, at, stride, to, yRow, mode);
    }
    p += depth;
  } while (p < k);
}

/** One row against panels, two at a time: eight chains keep the multiply-adds busy while the weights stream by. */
function rowPanels(n: i32, k: i32, x: usize, b: usize, stride: usize, y: usize, mode: i32): void {
  for (; n >= 32; n -= 32) {
    // Two calls keep the loop a function of its own: unrolled in here it would run out of registers.
    if (mode) rowPair(k, x, b, b + stride, y, mode);
    else rowPair(k, x, b, b + stride, y, 0);
    b += stride << 1;
    y += 128;
  }
  panels(1, n, k, x, 0, 4, b, stride, y, 0, mode);
}

function rowPair(k: i32, x: usize, b: usize, d: usize, y: usize, mode: i32): void {
  let x0 = i32x4.splat(0), x1 = i32x4.splat(0), x2 = i32x4.splat(0), x3 = i32x4.splat(0);
  let x4 = i32x4.splat(0), x5 = i32x4.splat(0), x6 = i32x4.splat(0), x7 = i32x4.splat(0);
  if (mode != 0) {
    x0 = v128.load(y); x1 = v128.load(y, 16); x2 = v128.load(y, 32); x3 = v128.load(y, 48);
    x4 = v128.load(y, 64); x5 = v128.load(y, 80); x6 = v128.load(y, 96); x7 = v128.load(y, 112);
  }
  // The order of the stores below, which is what keeps each load beside its product on V8 before 12.
  for (; k > 0; k--) {
    const s = v128.load_splat<f32>(x);
    x0 = fma(s, v128.load(b), x0); x1 = fma(s, v128.load(b, 16), x1);
    x2 = fma(s, v128.load(b, 32), x2); x3 = fma(s, v128.load(b, 48), x3);
    x4 = fma(s, v128.load(d), x4); x5 = fma(s, v128.load(d, 16), x5);
    x6 = fma(s, v128.load(d, 32), x6); x7 = fma(s, v128.load(d, 48), x7);
    x += 4;
    b += 64;
    d += 64;
  }
  v128.store(y, x0); v128.store(y, x1, 16); v128.store(y, x2, 32); v128.store(y, x3, 48);
  v128.store(y, x4, 64); v128.store(y, x5, 80); v128.store(y, x6, 96); v128.store(y, x7, 112);
}
