import { transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";

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
