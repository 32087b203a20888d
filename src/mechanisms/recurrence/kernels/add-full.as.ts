// Not causal: every query reads the state behind all keys. No decay, and queries of another length than the keys.
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { mappedRows } from "../../feature-maps/kernels/pointwise.as";
import {
  FINAL_NORMALIZER, FINAL_STATE, INITIAL_NORMALIZER, INITIAL_STATE, MAP_SHIFT, NORMALIZE, PACKED,
} from "./add-forward.as";
import { dot, loadLive, loadRows, padded, storeLive, storeRow, storeRows, sumRows } from "./add-rows.as";

/** Rows that a product takes at a time: they stay in the first cache while the column panels pass over them. */
export const BLOCK: i32 = 32;

@unmanaged
export class FullArguments {
  q: u32; k: u32; v: u32; initialState: u32; initialNormalizer: u32; cuQueries: u32; cuKeys: u32;
  o: u32; finalState: u32; finalNormalizer: u32;
  flags: i32; sequences: i32; queryTime: i32; keyTime: i32; heads: i32; valueHeads: i32; keyWidth: i32; valueWidth: i32;
  qStride: i32; kStride: i32; vStride: i32; oStride: i32;
  columns: i32;
  scale: f32; eps: f32;
}

/** First row of sequence n on an axis, and one past its last. */
export function firstRow(packed: i32, cuSeqlens: u32, n: i32, time: i32): i32 {
  return packed ? load<i32>(<usize>cuSeqlens + (<usize>n << 2)) : n * time;
}

/** Multiplies operand rows by a factor of their own. */
export function scaleOperand(row: usize, width: i32, factor: f32): void {
  const wide = f32x4.splat(factor);
  for (let j: i32 = 0; j < width; j += 4) {
    const at = row + (<usize>j << 2);
    storeLive(at, f32x4.mul(loadLive(at, width - j), wide), width - j);
  }
}

/** What a row has read times scale, or over its denominator. */
function finishRow(a: FullArguments, q: usize, z: usize, o: usize, columns: i32): void {
  let factor = a.scale;
  if (a.flags & NORMALIZE) {
    const d = a.scale * dot(q, z, a.keyWidth) + a.eps;
    factor = d == 0 ? 0 : a.scale / d;
  }
  if (factor != 1) scaleOperand(o, columns, factor);
}

function forwardUnit(a: FullArguments, n: i32, head: i32, column: i32, state: usize): void {
  const K = a.keyWidth;
  const V = a.valueWidth;
  const columns = min(a.columns, V - column);
  const stateRow = <usize>padded(columns) << 2;
  const z = state + <usize>K * stateRow;
  const packed = a.flags & PACKED;
  const keyHead = <usize>(head / (a.valueHeads / a.heads) * K) << 2;
  const valueColumn = <usize>(head * V + column) << 2;
  const qRow = <usize>a.qStride << 2, kRow = <usize>a.kStride << 2, vRow = <usize>a.vStride << 2, oRow = <usize>a.oStride << 2;
  const queryBegin = firstRow(packed, a.cuQueries, n, a.queryTime);
  const queries = firstRow(packed, a.cuQueries, n + 1, a.queryTime) - queryBegin;
  const keyBegin = firstRow(packed, a.cuKeys, n, a.keyTime);
  const keys = firstRow(packed, a.cuKeys, n + 1, a.keyTime) - keyBegin;
  const k = <usize>a.k + <usize>keyBegin * kRow + keyHead;
  const v = <usize>a.v + <usize>keyBegin * vRow + valueColumn;
  const q = <usize>a.q + <usize>queryBegin * qRow + keyHead;
  const o = <usize>a.o + <usize>queryBegin * oRow + valueColumn;
  const channel = <usize>(n * a.valueHeads + head) * <usize>K << 2;
  const carried = channel * <usize>V + (<usize>column << 2);
  loadRows(state, stateRow, a.flags & INITIAL_STATE ? <usize>a.initialState + carried : 0, <usize>V << 2, K, columns);
  loadRows(z, <usize>padded(K) << 2, a.flags & INITIAL_NORMALIZER ? <usize>a.initialNormalizer + channel : 0, 0, 1, K);
  const map = a.flags >> MAP_SHIFT;
  const block = z + (<usize>padded(K) << 2), blockRow = <usize>padded(K) << 2;
  for (let t: i32 = 0; t < keys; t += BLOCK) {
    const rows = min(BLOCK, keys - t);
    const left = mappedRows(map, k + <usize>t * kRow, kRow, rows, K, block, blockRow);
    const leftRow = map ? blockRow : kRow;
    gemmBlock(K, columns, rows, left, 4, leftRow, v + <usize>t * vRow, vRow, state, stateRow, 1);
    if (a.flags & NORMALIZE) sumRows(z, left, leftRow, rows, K);
  }
  for (let t: i32 = 0; t < queries; t += BLOCK) {
    const rows = min(BLOCK, queries - t);
    const left = mappedRows(map, q + <usize>t * qRow, qRow, rows, K, block, blockRow);
    const leftRow = map ? blockRow : qRow;
    gemmBlock(rows, columns, K, left, leftRow, 4, state, stateRow, o + <usize>t * oRow, oRow, 0);
    for (let i: i32 = 0; i < rows; i++)
      finishRow(a, left + <usize>i * leftRow, z, o + <usize>(t + i) * oRow, columns);
  }
  if (a.flags & FINAL_STATE) storeRows(<usize>a.finalState + carried, <usize>V << 2, state, stateRow, K, columns, false);
  if (a.flags & FINAL_NORMALIZER && column == 0) storeRow(<usize>a.finalNormalizer + channel, z, K);
}

// args: see FullArguments. One unit is `columns` value columns of one value head of one sequence.
export function recurrence_addFull_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<FullArguments>(args);
  const blocks = (a.valueWidth + a.columns - 1) / a.columns;
  for (let unit = begin; unit < end; unit++) {
    const head = unit / blocks;
    forwardUnit(a, head / a.valueHeads, head % a.valueHeads, (unit % blocks) * a.columns, scratch);
  }
}
