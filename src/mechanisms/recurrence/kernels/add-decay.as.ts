// What decays do inside a chunk. Every factor is the exponential of the sum of a segment of gates (or a running product
// of such), never of a difference of prefix sums, so no exponent is above 0 and none cancels.
import { exp1, exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { clear, fillWith, loadTail, padded } from "./add-rows.as";

export const NONE: i32 = 0;
export const HEAD: i32 = 1;
export const SCALAR: i32 = 2;
export const KEY: i32 = 3;

/** Bytes between the records of value heads that are walked side by side. */
export const RECORD: usize = 512;

// Masks of the first 0 to 4 lanes.
// prettier-ignore
const LANES = memory.data<u32>([
  0, 0, 0, 0, 0xffffffff, 0, 0, 0, 0xffffffff, 0xffffffff, 0, 0,
  0xffffffff, 0xffffffff, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
], 16);

/** All ones in the first n lanes, n from 0 to 4. */
// @ts-ignore: decorator
@inline export function firstLanes(n: i32): v128 {
  return v128.load(LANES + (<usize>n << 4));
}

/** A chunk of rows and the factors that its gates give. Tables of key decays have a padded row per token. */
@unmanaged
export class Chunk {
  decay: i32;
  keyWidth: i32;
  /** Most rows a chunk may have, and the rows of this one. */
  size: i32;
  rows: i32;
  /** The first row's gates; of a fixed decay the gate itself. */
  g: usize;
  gRow: usize;
  /** Bytes of a padded row of keys (whole blocks of sixteen), and of scores. */
  row: usize;
  scoreRow: usize;
  /** exp of the sum of the gates up to and with a row; of those behind it. */
  prefix: usize;
  suffix: usize;
  /** exp(g) of key decays, and a row of ones behind the last. */
  gates: usize;
  /** exp of the sum of the gates from behind row j up to and with row i, for scalar and fixed decays. */
  segments: usize;
  line: usize;
  /** The state's decay over the chunk: S <- S·factor + (S and keep), one entry per channel. */
  factor: usize;
  keep: usize;
}

/** Bytes of rows, from the widths. */
export function setRows(chunk: Chunk): void {
  chunk.row = <usize>((chunk.keyWidth + 15) & ~15) << 2;
  chunk.scoreRow = <usize>padded(chunk.size) << 2;
}

/** Lays the tables into scratch; returns the address behind them. */
export function layTables(chunk: Chunk, at: usize): usize {
  const perRow = chunk.decay == KEY ? <usize>chunk.size * chunk.row : chunk.scoreRow;
  chunk.prefix = at;
  at += perRow;
  chunk.suffix = at;
  at += perRow;
  chunk.gates = at;
  if (chunk.decay == KEY) at += perRow + chunk.row;
  chunk.segments = at;
  if (chunk.decay == HEAD || chunk.decay == SCALAR) at += <usize>chunk.size * chunk.scoreRow;
  chunk.line = at;
  at += chunk.scoreRow;
  chunk.factor = at;
  at += chunk.row;
  chunk.keep = at;
  return at + chunk.row;
}

/** Slow decays as S += expm1(g)·S: a factor just below 1 would carry its rounding into every later token. */
function setFactor(chunk: Chunk, total: f32): void {
  const wide = f32x4.splat(total);
  const slow = f32x4.gt(wide, f32x4.splat(-0.5));
  const factor = v128.bitselect(expm14(wide), exp4(wide), slow);
  for (let j: usize = 0; j < chunk.row; j += 16) {
    v128.store(chunk.factor + j, factor);
    v128.store(chunk.keep + j, slow);
  }
}

/** One row of segment factors from the segment sums of the row above. */
function segmentRow(row: usize, line: usize, i: i32, gate: f32): void {
  const wide = f32x4.splat(gate);
  const whole = <usize>(i >> 2) << 4;
  for (let j: usize = 0; j < whole; j += 16) {
    const sum = f32x4.add(v128.load(line + j), wide);
    v128.store(line + j, sum);
    v128.store(row + j, exp4(sum));
  }
  const sum = f32x4.add(v128.load(line + whole), v128.and(wide, firstLanes(i & 3)));
  v128.store(line + whole, sum);
  v128.store(row + whole, v128.and(exp4(sum), firstLanes((i & 3) + 1)));
}

function exponentiate(p: usize, end: usize): void {
  for (; p < end; p += 16) v128.store(p, exp4(v128.load(p)));
}

/** The segment factors of a fixed decay are the same in every chunk. */
export function prepareHead(chunk: Chunk): void {
  if (chunk.decay != HEAD) return;
  const gate = load<f32>(chunk.g);
  const size = chunk.size;
  for (let i: i32 = 0; i < size; i++) {
    const row = chunk.segments + <usize>i * chunk.scoreRow;
    clear(row, padded(size));
    for (let j: i32 = 0; j < i; j++) store<f32>(row + (<usize>j << 2), <f32>(i - j) * gate);
    exponentiate(row, row + (<usize>padded(i) << 2));
    for (let j = i; j < padded(i + 1); j++) store<f32>(row + (<usize>j << 2), j == i ? 1 : 0);
    store<f32>(chunk.prefix + (<usize>i << 2), exp1(<f32>(i + 1) * gate));
  }
}

function headTables(chunk: Chunk): void {
  const gate = load<f32>(chunk.g);
  for (let j: i32 = 0; j < chunk.rows; j++)
    store<f32>(chunk.suffix + (<usize>j << 2), <f32>(chunk.rows - 1 - j) * gate);
  exponentiate(chunk.suffix, chunk.suffix + (<usize>padded(chunk.rows) << 2));
  setFactor(chunk, <f32>chunk.rows * gate);
}

function scalarTables(chunk: Chunk): void {
  const rows = chunk.rows;
  clear(chunk.line, padded(chunk.size));
  let sum: f32 = 0;
  for (let i: i32 = 0; i < rows; i++) {
    const gate = load<f32>(chunk.g + <usize>i * chunk.gRow);
    segmentRow(chunk.segments + <usize>i * chunk.scoreRow, chunk.line, i, gate);
    sum += gate;
    store<f32>(chunk.prefix + (<usize>i << 2), sum);
  }
  setFactor(chunk, sum);
  sum = 0;
  for (let i = rows - 1; i >= 0; i--) {
    store<f32>(chunk.suffix + (<usize>i << 2), sum);
    sum += load<f32>(chunk.g + <usize>i * chunk.gRow);
  }
  const bytes = <usize>padded(rows) << 2;
  exponentiate(chunk.prefix, chunk.prefix + bytes);
  exponentiate(chunk.suffix, chunk.suffix + bytes);
}

/** Four channels (the first `live` are there) of a key decay: gates, running products from both sides. */
function keyColumn(chunk: Chunk, column: usize, live: i32): void {
  const bytes = <usize>chunk.rows * chunk.row;
  const one = f32x4.splat(1);
  let g = chunk.g + column;
  let sum = i32x4.splat(0);
  let product = one;
  for (let i: usize = 0; i < bytes; i += chunk.row, g += chunk.gRow) {
    const gate = live >= 4 ? v128.load(g) : live > 0 ? loadTail(g, live) : i32x4.splat(0);
    const a = exp4(gate);
    sum = f32x4.add(sum, gate);
    product = f32x4.mul(product, a);
    v128.store(chunk.gates + column + i, a);
    v128.store(chunk.prefix + column + i, product);
  }
  const slow = f32x4.gt(sum, f32x4.splat(-0.5));
  v128.store(chunk.factor + column, v128.bitselect(expm14(sum), product, slow));
  v128.store(chunk.keep + column, slow);
  product = one;
  for (let i = bytes; i > 0; ) {
    i -= chunk.row;
    v128.store(chunk.suffix + column + i, product);
    product = f32x4.mul(product, v128.load(chunk.gates + column + i));
  }
}

/** Fills the tables for the rows at `chunk.g`. */
export function prepareChunk(chunk: Chunk): void {
  if (chunk.decay == HEAD) headTables(chunk);
  else if (chunk.decay == SCALAR) scalarTables(chunk);
  else if (chunk.decay == KEY) {
    for (let column: usize = 0; column < chunk.row; column += 16)
      keyColumn(chunk, column, chunk.keyWidth - <i32>(column >> 2));
    fillWith(chunk.gates + <usize>chunk.rows * chunk.row, <i32>(chunk.row >> 2), 1);
  }
}

/** Decays a state whose rows are channels. */
export function decayRows(chunk: Chunk, state: usize, stateRow: usize): void {
  if (chunk.decay == NONE) return;
  for (let k: usize = 0; k < <usize>chunk.keyWidth << 2; k += 4) {
    const factor = v128.load_splat<f32>(chunk.factor + k);
    const keep = v128.load_splat<i32>(chunk.keep + k);
    for (const end = state + stateRow; state < end; state += 16) {
      const x = v128.load(state);
      v128.store(state, fma(x, factor, v128.and(x, keep)));
    }
  }
}

/** Decays rows whose columns are channels: a transposed state, or the normaliser as one row. */
export function decayColumns(chunk: Chunk, state: usize, rows: i32): void {
  if (chunk.decay == NONE) return;
  for (let i: i32 = 0; i < rows; i++, state += chunk.row)
    for (let j: usize = 0; j < chunk.row; j += 16) {
      const x = v128.load(state + j);
      v128.store(state + j, fma(x, v128.load(chunk.factor + j), v128.and(x, v128.load(chunk.keep + j))));
    }
}

/**
 * Scores to weights: P_ij <- E_ij (alpha_i P_ij + sigma_i) for j <= i and 0 above, E the segment factors where there
 * are any, sigma 0 where its address is 0. P has rows of `row` bytes. With an address for the diagonal, that goes there and leaves zeros behind.
 */
export function maskScores(chunk: Chunk, p: usize, row: usize, alpha: usize, sigma: usize, diagonal: usize): void {
  const width = <usize>padded(chunk.rows) << 2;
  const zero = i32x4.splat(0);
  const one = f32x4.splat(1);
  const hasSegments = chunk.decay == HEAD || chunk.decay == SCALAR;
  let segment = chunk.segments;
  for (let i: i32 = 0; i < chunk.rows; i++, p += row, segment += chunk.scoreRow) {
    const at = <usize>i << 2;
    const a = v128.load_splat<f32>(alpha + at);
    const s = sigma ? v128.load_splat<f32>(sigma + at) : zero;
    const whole = <usize>(i >> 2) << 4;
    for (let j: usize = 0; j <= whole; j += 16) {
      const x = fma(v128.load(p + j), a, s);
      v128.store(p + j, f32x4.mul(x, hasSegments ? v128.load(segment + j) : one));
    }
    if (diagonal) store<f32>(diagonal + at, load<f32>(p + at));
    const kept = firstLanes(diagonal ? i & 3 : (i & 3) + 1);
    v128.store(p + whole, v128.and(v128.load(p + whole), kept));
    for (let j = whole + 16; j < width; j += 16) v128.store(p + j, zero);
  }
}
