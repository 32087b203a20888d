// The backward of the form that is not causal: the state is summed again, its gradient once, and both are read by rows.
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { mapRows, mappedRows, slopeRows } from "../../feature-maps/kernels/pointwise.as";
import {
  FINAL_NORMALIZER, FINAL_STATE, INITIAL_NORMALIZER, INITIAL_STATE, MAP_SHIFT, NORMALIZE, PACKED,
} from "./add-forward.as";
import { BLOCK, firstRow } from "./add-full.as";
import { INITIAL_NORMALIZER_GRADIENT, INITIAL_STATE_GRADIENT } from "./add-gradient.as";
import { addScaled, clear, dot, loadRows, padded, storeRow, storeRows, sumRows } from "./add-rows.as";

@unmanaged
class FullGradientArguments {
  q: u32; k: u32; v: u32; initialState: u32; initialNormalizer: u32; cuQueries: u32; cuKeys: u32;
  dOutput: u32; dFinalState: u32; dFinalNormalizer: u32;
  dq: u32; dk: u32; dv: u32; dInitialState: u32; dInitialNormalizer: u32; dqParts: u32; dkParts: u32;
  flags: i32; sequences: i32; queryTime: i32; keyTime: i32; heads: i32; valueHeads: i32; keyWidth: i32; valueWidth: i32;
  qStride: i32; kStride: i32; vStride: i32; dOutputStride: i32; dqStride: i32; dkStride: i32; dvStride: i32;
  parts: i32;
  scale: f32; eps: f32;
}

/** One value head: rows it reads, memory it works in. */
@unmanaged
class Full {
  q: usize; k: usize; v: usize; dO: usize; dq: usize; dk: usize; dv: usize;
  qRow: usize; kRow: usize; vRow: usize; dORow: usize; dqRow: usize; dkRow: usize; dvRow: usize;
  queries: i32; keys: i32; keyWidth: i32; valueWidth: i32; flags: i32; map: i32; add: bool;
  scale: f32; eps: f32;
  /** S transposed, R = dS, R transposed; rows of keys and of values; z and dz. */
  state: usize; gradient: usize; turned: usize; row: usize; stateRow: usize; z: usize; dz: usize;
  /** A block of rows of gradients, and of mapped keys or queries, these scaled in the end. */
  result: usize; mapped: usize;
}

function lay(f: Full, scratch: usize): void {
  const K = <usize>f.keyWidth;
  const V = <usize>f.valueWidth;
  f.row = <usize>padded(f.keyWidth) << 2;
  f.stateRow = <usize>padded(f.valueWidth) << 2;
  let at = scratch + 256;
  f.state = at; at += V * f.row;
  f.gradient = at; at += K * f.stateRow;
  f.turned = at; at += V * f.row;
  f.z = at; at += f.row;
  f.dz = at; at += f.row;
  f.result = at; at += <usize>BLOCK * f.row;
  f.mapped = at;
  clear(f.result, BLOCK * padded(f.keyWidth));
}

/** dq of a block of queries, and what they give to R and dz. */
function queryBlock(f: Full, t: i32): void {
  const K = f.keyWidth;
  const rows = min(BLOCK, f.queries - t);
  const q = f.q + <usize>t * f.qRow;
  const dO = f.dO + <usize>t * f.dORow;
  gemmBlock(rows, K, f.valueWidth, dO, f.dORow, 4, f.state, f.row, f.result, f.row, 0);
  mapRows(f.map, f.mapped, f.row, q, f.qRow, rows, K);
  for (let i: i32 = 0; i < rows; i++) {
    const row = f.result + <usize>i * f.row;
    const query = f.mapped + <usize>i * f.row;
    let alpha = f.scale;
    let sigma: f32 = 0;
    if (f.flags & NORMALIZE) {
      const d = f.scale * dot(query, f.z, K) + f.eps;
      const inverse: f32 = d == 0 ? 0 : 1 / d;
      alpha = f.scale * inverse;
      sigma = -f.scale * f.scale * dot(query, row, K) * inverse * inverse;
      addScaled(f.dz, query, sigma, padded(K));
    }
    const a = f32x4.splat(alpha);
    const s = f32x4.splat(sigma);
    for (let j: usize = 0; j < f.row; j += 16) {
      v128.store(row + j, fma(v128.load(row + j), a, f32x4.mul(v128.load(f.z + j), s)));
    }
    slopeRows(f.map, row, 0, row, 0, query, 0, 1, K);
    for (let j: usize = 0; j < f.row; j += 16) v128.store(query + j, f32x4.mul(v128.load(query + j), a));
  }
  storeRows(f.dq + <usize>t * f.dqRow, f.dqRow, f.result, f.row, rows, K, f.add);
  gemmBlock(K, f.valueWidth, rows, f.mapped, 4, f.row, dO, f.dORow, f.gradient, f.stateRow, 1);
}

/** dk and dv of a block of keys. */
function keyBlock(f: Full, t: i32): void {
  const K = f.keyWidth;
  const V = f.valueWidth;
  const rows = min(BLOCK, f.keys - t);
  const at = <usize>t;
  const k = mappedRows(f.map, f.k + at * f.kRow, f.kRow, rows, K, f.mapped, f.row);
  const kRow = f.map ? f.row : f.kRow;
  gemmBlock(rows, K, V, f.v + at * f.vRow, f.vRow, 4, f.turned, f.row, f.result, f.row, 0);
  for (let i: i32 = 0; i < rows && f.flags & NORMALIZE; i++)
    addScaled(f.result + <usize>i * f.row, f.dz, 1, padded(K));
  slopeRows(f.map, f.result, f.row, f.result, f.row, k, kRow, rows, K);
  storeRows(f.dk + at * f.dkRow, f.dkRow, f.result, f.row, rows, K, f.add);
  gemmBlock(rows, V, K, k, kRow, 4, f.gradient, f.stateRow, f.dv + at * f.dvRow, f.dvRow, 0);
}

/** S transposed and z behind all keys. */
function sumKeys(f: Full): void {
  for (let t: i32 = 0; t < f.keys; t += BLOCK) {
    const rows = min(BLOCK, f.keys - t);
    const at = <usize>t;
    const k = mappedRows(f.map, f.k + at * f.kRow, f.kRow, rows, f.keyWidth, f.mapped, f.row);
    const kRow = f.map ? f.row : f.kRow;
    gemmBlock(f.valueWidth, f.keyWidth, rows, f.v + at * f.vRow, 4, f.vRow, k, kRow, f.state, f.row, 1);
    if (f.flags & NORMALIZE) sumRows(f.z, k, kRow, rows, f.keyWidth);
  }
}

/** Both passes of one value head of sequence n. */
function headGradients(a: FullGradientArguments, f: Full, n: i32, head: i32): void {
  const K = f.keyWidth;
  const V = f.valueWidth;
  const carried = <usize>V << 2;
  const channel = <usize>(n * a.valueHeads + head) * <usize>K << 2;
  const state = channel * <usize>V;
  clear(f.state, <i32>(f.row >> 2) * V);
  if (a.flags & INITIAL_STATE) transposeBlock(K, V, <usize>a.initialState + state, carried, f.state, f.row);
  loadRows(f.z, f.row, a.flags & INITIAL_NORMALIZER ? <usize>a.initialNormalizer + channel : 0, 0, 1, K);
  loadRows(f.gradient, f.stateRow, a.flags & FINAL_STATE ? <usize>a.dFinalState + state : 0, carried, K, V);
  loadRows(f.dz, f.row, a.flags & FINAL_NORMALIZER ? <usize>a.dFinalNormalizer + channel : 0, 0, 1, K);
  sumKeys(f);
  for (let t: i32 = 0; t < f.queries; t += BLOCK) queryBlock(f, t);
  transposeBlock(K, V, f.gradient, f.stateRow, f.turned, f.row);
  for (let t: i32 = 0; t < f.keys; t += BLOCK) keyBlock(f, t);
  if (a.flags & INITIAL_STATE_GRADIENT)
    storeRows(<usize>a.dInitialState + state, carried, f.gradient, f.stateRow, K, V, false);
  if (a.flags & INITIAL_NORMALIZER_GRADIENT) storeRow(<usize>a.dInitialNormalizer + channel, f.dz, K);
}

/** Points the record at the rows of value head `head`; dq and dk of later parts go to rows laid without gaps. */
function locate(a: FullGradientArguments, f: Full, n: i32, head: i32, part: i32): void {
  const packed = a.flags & PACKED;
  const firstQuery = firstRow(packed, a.cuQueries, n, a.queryTime);
  const firstKey = firstRow(packed, a.cuKeys, n, a.keyTime);
  f.queries = firstRow(packed, a.cuQueries, n + 1, a.queryTime) - firstQuery;
  f.keys = firstRow(packed, a.cuKeys, n + 1, a.keyTime) - firstKey;
  const query = <usize>firstQuery, key = <usize>firstKey;
  const keyColumn = <usize>(head / (a.valueHeads / a.heads) * a.keyWidth) << 2;
  const valueColumn = <usize>(head * a.valueWidth) << 2;
  f.q = <usize>a.q + query * f.qRow + keyColumn;
  f.k = <usize>a.k + key * f.kRow + keyColumn;
  f.v = <usize>a.v + key * f.vRow + valueColumn;
  f.dO = <usize>a.dOutput + query * f.dORow + valueColumn;
  f.dv = <usize>a.dv + key * f.dvRow + valueColumn;
  const width = <usize>(a.heads * a.keyWidth) << 2;
  const rows: usize = packed ? 1 : <usize>a.sequences;
  f.dqRow = part == 0 ? <usize>a.dqStride << 2 : width;
  f.dkRow = part == 0 ? <usize>a.dkStride << 2 : width;
  const queryPart = part == 0 ? <usize>a.dq : <usize>a.dqParts + <usize>(part - 1) * rows * <usize>a.queryTime * width;
  const keyPart = part == 0 ? <usize>a.dk : <usize>a.dkParts + <usize>(part - 1) * rows * <usize>a.keyTime * width;
  f.dq = queryPart + query * f.dqRow + keyColumn;
  f.dk = keyPart + key * f.dkRow + keyColumn;
}

// args: see FullGradientArguments. One unit is a part of the value heads of one key head of one sequence.
export function recurrence_addFull_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<FullGradientArguments>(args);
  const f = changetype<Full>(scratch);
  f.keyWidth = a.keyWidth;
  f.valueWidth = a.valueWidth;
  f.flags = a.flags;
  f.map = a.flags >> MAP_SHIFT;
  f.scale = a.scale;
  f.eps = a.eps;
  f.qRow = <usize>a.qStride << 2;
  f.kRow = <usize>a.kStride << 2;
  f.vRow = <usize>a.vStride << 2;
  f.dORow = <usize>a.dOutputStride << 2;
  f.dvRow = <usize>a.dvStride << 2;
  lay(f, scratch);
  const group = a.valueHeads / a.heads;
  for (let unit = begin; unit < end; unit++) {
    const part = unit % a.parts;
    const keyHead = unit / a.parts % a.heads;
    const n = unit / a.parts / a.heads;
    const from = part * group / a.parts;
    for (let member = from; member < (part + 1) * group / a.parts; member++) {
      f.add = member != from;
      locate(a, f, n, keyHead * group + member, part);
      headGradients(a, f, n, keyHead * group + member);
    }
  }
}
