// dg of a chunk. Gate t meets everything that passes it: reads at or behind t of writes before t. Inside the chunk
// that is the reads q ∘ dq at or behind t less their part from writes at or behind t; from outside it is the writes before
// t that reach R, and what passes the whole chunk, decay ∘ <R, S>. No sum runs longer than a chunk.
import { transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { KEY, SCALAR } from "./add-decay.as";
import { NORMALIZE } from "./add-forward.as";
import { Gradient } from "./add-gradient.as";
import { dot, storeLive } from "./add-rows.as";

/** Rows times rows: kept per channel for key decays, else summed over the channels. */
export function keepProduct(r: Gradient, to: usize, a: usize, b: usize): void {
  for (let i: i32 = 0; i < r.rows; i++, a += r.row, b += r.row) {
    if (r.decay != KEY) {
      store<f32>(to + (<usize>i << 2), dot(a, b, r.keyWidth));
      continue;
    }
    for (let j: usize = 0; j < <usize>r.keyWidth << 2; j += 16)
      v128.store(to + j, f32x4.mul(v128.load(a + j), v128.load(b + j)));
    to += r.row;
  }
}

/** The row at `to` = decay ∘ (<R, S> + dz ∘ z), what passes the whole chunk in each channel. */
function passingPart(r: Gradient, to: usize): void {
  const K = r.keyWidth;
  transposeBlock(r.valueWidth, K, r.state, r.row, r.passing, r.stateRow);
  for (let c: i32 = 0; c < K; c++) {
    const at = <usize>c << 2;
    let x = dot(r.passing + <usize>c * r.stateRow, r.stateGradient + <usize>c * r.stateRow, r.valueWidth);
    if (r.flags & NORMALIZE) x += load<f32>(r.normalizerGradient + at) * load<f32>(r.normalizer + at);
    const wide = f32x4.splat(x);
    const kept = v128.and(wide, v128.load_splat<i32>(r.keep + at));
    store<f32>(to + at, f32x4.extract_lane(fma(wide, v128.load_splat<f32>(r.factor + at), kept), 0));
  }
}

/** dg of one gate a token. */
function gateScalars(r: Gradient, passing: usize): void {
  let sum: f64 = 0;
  for (let c: i32 = 0; c < r.keyWidth; c++) sum += <f64>load<f32>(passing + (<usize>c << 2));
  for (let i: i32 = 0; i < r.rows; i++) {
    const at = r.gateK + (<usize>i << 2);
    const write = <f64>load<f32>(at);
    store<f32>(at, <f32>sum);
    sum += write;
  }
  sum = 0;
  for (let i = r.rows - 1; i >= 0; i--) {
    const at = <usize>i << 2;
    sum += <f64>load<f32>(r.gateQ + at) - <f64>load<f32>(r.gateInner + at);
    const gradient = sum + <f64>load<f32>(r.gateK + at);
    if (r.decay == SCALAR) store<f32>(r.dg + <usize>i * r.dgRow, <f32>gradient);
    else r.gateTotal += gradient;
  }
}

/** dg of every channel. */
function gateChannels(r: Gradient, passing: usize): void {
  for (let j: i32 = 0; j < r.keyWidth; j += 4) {
    const column = <usize>j << 2;
    let sum = v128.load(passing + column);
    for (let i: i32 = 0; i < r.rows; i++) {
      const at = r.gateK + <usize>i * r.row + column;
      const write = v128.load(at);
      v128.store(at, sum);
      sum = f32x4.add(sum, write);
    }
    sum = i32x4.splat(0);
    for (let i = r.rows - 1; i >= 0; i--) {
      const at = <usize>i * r.row + column;
      sum = f32x4.add(sum, f32x4.sub(v128.load(r.gateQ + at), v128.load(r.gateInner + at)));
      storeLive(r.dg + <usize>i * r.dgRow + column, f32x4.add(sum, v128.load(r.gateK + at)), r.keyWidth - j);
    }
  }
}

/** dg of the open chunk; the record's state is the one before it, R still the one behind it. */
export function gatePart(r: Gradient): void {
  passingPart(r, r.decayedQ);
  if (r.decay == KEY) gateChannels(r, r.decayedQ);
  else gateScalars(r, r.decayedQ);
}
