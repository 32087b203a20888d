import { fma } from "../../../device/wasm/kernels/simd.as";
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";

// A panel holds 16 columns of an operand B[p, j]: row p after row p, 64 bytes each, whatever the tier.

/** Copies B[p, j], p < k, j < n, rows contiguous at b + p bRow, into panels `stride` bytes apart. */
export function packRows(n: i32, k: i32, b: usize, bRow: usize, to: usize, stride: usize): void {
  for (; n > 0; n -= 16) {
    let from = b, at = to;
    if (n >= 16) {
      for (let p: i32 = 0; p < k; p++) {
        v128.store(at, v128.load(from));
        v128.store(at, v128.load(from, 16), 16);
        v128.store(at, v128.load(from, 32), 32);
        v128.store(at, v128.load(from, 48), 48);
        from += bRow;
        at += 64;
      }
    } else {
      for (let p: i32 = 0; p < k; p++) {
        for (let j: i32 = 0; j < n; j++) store<i32>(at + ((<usize>j) << 2), load<i32>(from + ((<usize>j) << 2)));
        from += bRow;
        at += 64;
      }
    }
    b += 64;
    to += stride;
  }
}

/** The same from the transposed layout: column j of B is contiguous over p at b + j bCol. */
export function packColumns(n: i32, k: i32, b: usize, bCol: usize, to: usize, stride: usize): void {
  for (; n > 0; n -= 16) {
    transposeBlock(min(n, 16), k, b, bCol, to, 64);
    b += bCol << 4;
    to += stride;
  }
}

/** Rows at a time: a multiple of every tile's height that keeps a block of A in the cache, or what is left. */
export function blockRows(left: i32): i32 {
  return left > 160 ? 120 : left;
}

/** One block of rows against panels of 16 columns, `stride` bytes apart. */
export function panels(m: i32, n: i32, k: i32, a: usize, aRow: usize, aStep: usize, b: usize, stride: usize, c: usize, cRow: usize, mode: i32): void {
  if (m == 1) {
    rowPanels(n, k, a, aStep, b, stride, c, mode);
    return;
  }
  for (; n > 0; n -= 16) {
    touchPanel(k, b);
    gemmBlock(m, min(n, 16), k, a, aRow, aStep, b, 64, c, cRow, mode);
    b += stride;
    c += 64;
  }
}

/** Reads a word of every line of a panel: all are then under way at once, in the middle of products only a few would be. */
function touchPanel(k: i32, b: usize): void {
  let seen: i32 = 0;
  for (; k >= 4; k -= 4) {
    seen |= load<i32>(b) | load<i32>(b, 64) | load<i32>(b, 128) | load<i32>(b, 192);
    b += 256;
  }
  // Never so: what nobody could use would not be read.
  if (k < 0) store<i32>(b, seen);
}

/** Starts each row of C from the bias, added to what is there when accumulating. */
export function seed(m: i32, n: i32, c: usize, cRow: usize, bias: usize, accumulate: i32): void {
  const bytes = (<usize>n) << 2, wide = bytes & ~15;
  for (let i: i32 = 0; i < m; i++) {
    let at: usize = 0;
    if (accumulate) {
      for (; at < wide; at += 16) v128.store(c + at, f32x4.add(v128.load(c + at), v128.load(bias + at)));
      for (; at < bytes; at += 4) store<f32>(c + at, load<f32>(c + at) + load<f32>(bias + at));
    } else {
      for (; at < wide; at += 16) v128.store(c + at, v128.load(bias + at));
      for (; at < bytes; at += 4) store<i32>(c + at, load<i32>(bias + at));
    }
    c += cRow;
  }
}

/** One row against panels, two at a time: eight chains keep the multiply-adds busy while the weights stream by. */
function rowPanels(n: i32, k: i32, x: usize, xStep: usize, b: usize, stride: usize, y: usize, mode: i32): void {
  for (; n >= 32; n -= 32) {
    // Two calls keep the loop a function of its own: unrolled in here it would run out of registers.
    if (mode) rowPair(k, x, xStep, b, b + stride, y, mode);
    else rowPair(k, x, xStep, b, b + stride, y, 0);
    b += stride << 1;
    y += 128;
  }
  for (; n > 0; n -= 16) {
    gemmBlock(1, min(n, 16), k, x, 0, xStep, b, 64, y, 0, mode);
    b += stride;
    y += 64;
  }
}

function rowPair(k: i32, x: usize, xStep: usize, b: usize, d: usize, y: usize, mode: i32): void {
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
    x += xStep;
    b += 64;
    d += 64;
  }
  v128.store(y, x0); v128.store(y, x1, 16); v128.store(y, x2, 32); v128.store(y, x3, 48);
  v128.store(y, x4, 64); v128.store(y, x5, 80); v128.store(y, x6, 96); v128.store(y, x7, 112);
}
