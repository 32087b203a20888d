import { dotRun } from "../../../device/wasm/kernels/rows.as";
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { factors, gatherRow, scaleRow, slopeRow } from "./parts.as";

// y = r·x·w with r = 1 / √(Σ x² · share + eps) for rows of n floats. `groups` rows lie side by side and have weights of
// their own; row i has those from (i mod groups)·n on. Scratch: groups·n floats.

// args: x, w, y, r; n, stride, groups, mode, rows; share, eps. One unit is a row.
export function rmsNorm_rows_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 4), stride = (<usize>intAt(args, 5)) << 2, groups = intAt(args, 6);
  const share = floatAt(args, 9), eps = floatAt(args, 10);
  const w = factors(pointerAt(args, 1), scratch, n * groups, intAt(args, 7));
  for (let row = begin; row < end; row++) {
    const x = pointerAt(args, 0) + (<usize>row) * stride;
    const y = pointerAt(args, 2) + (((<usize>row) * (<usize>n)) << 2);
    const r: f32 = <f32>1 / sqrt<f32>(dotRun(x, x, n) * share + eps);
    store<f32>(pointerAt(args, 3) + ((<usize>row) << 2), r);
    scaleRow(x, w + ((<usize>((row % groups) * n)) << 2), y, n, r);
  }
}

// args: x, w, r, dy, dx, dw; n, stride, groups, mode, rows, block; share. One unit is `block` times `groups` rows, whose
// part of the gradient by w is row `unit` of dw; there is none in mode 0.
export function rmsNorm_rows_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const n = intAt(args, 6), stride = (<usize>intAt(args, 7)) << 2, groups = intAt(args, 8), mode = intAt(args, 9);
  const perUnit = intAt(args, 11) * groups;
  const share = floatAt(args, 12);
  const w = factors(pointerAt(args, 1), scratch, n * groups, mode);
  const rowBytes = (<usize>n) << 2;
  for (let unit = begin; unit < end; unit++) {
    const dw = pointerAt(args, 5) + (<usize>unit) * (<usize>groups) * rowBytes;
    if (mode != 0) memory.fill(dw, 0, (<usize>groups) * rowBytes);
    const last = min((unit + 1) * perUnit, intAt(args, 10));
    for (let row = unit * perUnit; row < last; row++) {
      const x = pointerAt(args, 0) + (<usize>row) * stride;
      const dy = pointerAt(args, 3) + (<usize>row) * rowBytes, dx = pointerAt(args, 4) + (<usize>row) * rowBytes;
      const r = load<f32>(pointerAt(args, 2) + ((<usize>row) << 2));
      const group = (<usize>(row % groups)) * rowBytes;
      const c = gatherRow(x, w + group, dy, dw + group, n, r, mode != 0) * share * r * r * r;
      slopeRow(x, w + group, dy, dx, n, r, c);
    }
  }
}
