// Chunkwise forward of S <- decay S + k vᵀ, o = scale Sᵀq, with or without the normaliser. Inside a chunk the scores of
// its rows against each other, between chunks the state.
import {
  gemmBlock, gemmLower, gemmLowerLeft, transposeBlock,
} from "../../../device/wasm/kernels/generated/tile.as";
import { IDENTITY, mapRows } from "../../feature-maps/kernels/pointwise.as";
import {
  Chunk, HEAD, KEY, NONE, RECORD, SCALAR, decayColumns, decayRows, layTables, maskScores, prepareChunk, prepareHead, setRows,
} from "./add-decay.as";
import { keyScores } from "./add-key.as";
import {
  dot, fillWith, loadFiniteRows, loadRows, padded, scaleRows, storeRow, storeRows, sumLanes, sumRows, touchRows,
} from "./add-rows.as";

/** What is asked of a job besides the decay in the two lowest bits. */
export const NORMALIZE: i32 = 4;
export const INITIAL_STATE: i32 = 8;
export const INITIAL_NORMALIZER: i32 = 16;
export const FINAL_STATE: i32 = 32;
export const FINAL_NORMALIZER: i32 = 64;
export const PACKED: i32 = 128;
/** What q and k pass through stands above the flags. */
export const MAP_SHIFT: i32 = 12;

@unmanaged
export class ForwardArguments {
  q: u32; k: u32; v: u32; g: u32; initialState: u32; initialNormalizer: u32; cuSeqlens: u32;
  o: u32; finalState: u32; finalNormalizer: u32;
  flags: i32; sequences: i32; time: i32; heads: i32; valueHeads: i32; keyWidth: i32; valueWidth: i32;
  qStride: i32; kStride: i32; vStride: i32; gStride: i32; oStride: i32;
  chunk: i32; columns: i32; together: i32;
  scale: f32; eps: f32;
}

/** What one unit works on: a sequence's rows of one value head, and some of its value columns. */
@unmanaged
export class Forward extends Chunk {
  q: usize; k: usize; v: usize; o: usize;
  qRow: usize; kRow: usize; vRow: usize; oRow: usize;
  columns: i32;
  flags: i32;
  map: i32;
  /** Carried states; 0 where there is none or none is wanted. */
  initialState: usize; initialNormalizer: usize; finalState: usize; finalNormalizer: usize;
  carriedRow: usize;
  state: usize;
  stateRow: usize;
  normalizer: usize;
  valueLine: usize;
  /** Rows of scaled queries, each with its scores behind it; and the state's rows with the chunk's values behind them. */
  reads: usize;
  readRow: usize;
  scores: usize;
  values: usize;
  transposed: usize;
  decayedK: usize;
  plainQ: usize;
  plainK: usize;
  pairs: usize;
  scaled: usize;
  ones: usize;
  scale: f32;
  eps: f32;
}

/** Lays from `at` what value heads side by side use one after another; returns the address behind it. */
function layShared(f: Forward, at: usize): usize {
  const rows = <usize>f.size;
  if (f.decay != HEAD) at = layTables(f, at);
  f.valueLine = at;
  at += <usize>padded(f.columns) << 2;
  f.readRow = f.row + f.scoreRow;
  f.reads = at;
  f.scores = at + (<usize>f.keyWidth << 2);
  at += rows * f.readRow;
  f.transposed = at;
  at += <usize>f.keyWidth * f.scoreRow;
  f.decayedK = at;
  at += rows * f.row;
  f.plainQ = at;
  at += rows * f.row;
  f.plainK = at;
  at += rows * f.row;
  f.pairs = at;
  at += rows << 5;
  f.scaled = at;
  at += f.scoreRow;
  f.ones = at;
  at += f.scoreRow;
  fillWith(f.scaled, padded(f.size), f.scale);
  fillWith(f.ones, padded(f.size), 1);
  return at;
}

/** Lays what belongs to one value head alone: its state with the chunk's values behind it, its normaliser. */
function layOwn(f: Forward, at: usize): usize {
  if (f.decay == HEAD) at = layTables(f, at);
  f.state = at;
  at += (<usize>f.keyWidth + <usize>f.size) * (<usize>padded(f.columns) << 2);
  f.normalizer = at;
  return at + f.row;
}

/** Weights of the chunk's rows on each other, scale and decay included. */
function scores(f: Forward, q: usize, qRow: usize, k: usize, kRow: usize, alpha: usize): void {
  const rows = f.rows;
  if (f.decay == KEY) keyScores(f, q, k, f.scores, f.readRow, f.pairs);
  else {
    transposeBlock(rows, f.keyWidth, k, kRow, f.transposed, f.scoreRow);
    gemmLower(rows, rows, f.keyWidth, q, qRow, 4, f.transposed, f.scoreRow, f.scores, f.readRow, 0);
  }
  maskScores(f, f.scores, f.readRow, alpha, 0, 0);
}

/** Divides reads and scores by scale · z·q + eps, as their product would be, and brings z to the chunk's end. */
function normalize(f: Forward, k: usize, kRow: usize): void {
  const width = f.keyWidth;
  for (let i: i32 = 0; i < f.rows; i++) {
    const read = f.reads + <usize>i * f.readRow;
    const row = f.scores + <usize>i * f.readRow;
    let sum = v128.load(row);
    for (let j: i32 = 4; j <= i; j += 4) sum = f32x4.add(sum, v128.load(row + (<usize>j << 2)));
    const denominator = sumLanes(sum) + dot(read, f.normalizer, width) + f.eps;
    const factor = f32x4.splat(denominator == 0 ? 0 : 1 / denominator);
    let at = read;
    const end = row + (<usize>i << 2);
    for (; at + 16 <= end; at += 32) {
      const x = f32x4.mul(v128.load(at), factor);
      const y = f32x4.mul(v128.load(at, 16), factor);
      v128.store(at, x);
      v128.store(at, y, 16);
    }
    if (at <= end) v128.store(at, f32x4.mul(v128.load(at), factor));
  }
  decayColumns(f, f.normalizer, 1);
  sumRows(f.normalizer, k, kRow, f.rows, width);
}

/** The same product row after row, each over what it sees: 0 times a value may be no 0. */
function readEach(f: Forward): void {
  for (let i: i32 = 0; i < f.rows; i++) {
    const read = f.reads + <usize>i * f.readRow;
    gemmBlock(1, f.columns, f.keyWidth + i + 1, read, f.readRow, 4, f.state, f.stateRow, f.o + <usize>i * f.oRow, f.oRow, 0);
  }
}

/**
 * [Q | P] [S; V] is one product: the state and the chunk's own rows in one chain per element. Rows are copied on the way:
 * where operands lie a power of two apart they would push each other out of the first cache.
 */
function forwardChunk(f: Forward): void {
  const rows = f.rows;
  const width = f.keyWidth;
  prepareChunk(f);
  let q = f.q, qRow = f.qRow, k = f.k, kRow = f.kRow;
  const copied = f.decay == KEY || f.map != IDENTITY;
  if (copied) {
    k = f.plainK;
    kRow = f.row;
    mapRows(f.map, k, kRow, f.k, f.kRow, rows, width);
  }
  if (f.decay == NONE) {
    if (copied) mapRows(f.map, f.reads, f.readRow, q, qRow, rows, width);
    if (!copied || f.scale != 1)
      scaleRows(NONE, f.reads, f.readRow, copied ? f.reads : q, copied ? f.readRow : qRow, 0, 0, f.scaled, rows, width);
    scores(f, f.reads, f.readRow, k, kRow, f.ones);
  } else {
    if (copied) {
      mapRows(f.map, f.plainQ, f.row, q, qRow, rows, width);
      q = f.plainQ;
      qRow = f.row;
    }
    scaleRows(f.decay, f.reads, f.readRow, q, qRow, f.prefix, f.row, f.scaled, rows, width);
    scores(f, q, qRow, k, kRow, f.scaled);
  }
  if (f.decay != NONE) {
    scaleRows(f.decay, f.decayedK, f.row, k, kRow, f.suffix, f.row, f.ones, rows, width);
    k = f.decayedK;
    kRow = f.row;
  }
  const finite = loadFiniteRows(f.values, f.stateRow, f.v, f.vRow, rows, f.columns);
  if (f.flags & NORMALIZE) normalize(f, k, kRow);
  if (finite)
    gemmLowerLeft(rows, f.columns, width + rows, f.reads, f.readRow, 4, f.state, f.stateRow, f.o, f.oRow, 0);
  else readEach(f);
  decayRows(f, f.state, f.stateRow);
  gemmBlock(width, f.columns, rows, k, 4, kRow, f.values, f.stateRow, f.state, f.stateRow, 1);
}

/** Points the record at a value head of a sequence and some of its columns; returns the sequence's rows. */
export function locate(a: ForwardArguments, f: Forward, n: i32, head: i32, column: i32): i32 {
  const K = a.keyWidth;
  const V = a.valueWidth;
  const packed = a.flags & PACKED;
  const sequence = <usize>a.cuSeqlens + (<usize>n << 2);
  const begin = packed ? load<i32>(sequence) : n * a.time;
  const keyHead = head / (a.valueHeads / a.heads);
  f.columns = min(a.columns, V - column);
  f.stateRow = <usize>padded(f.columns) << 2;
  f.values = f.state + <usize>K * f.stateRow;
  f.q = <usize>a.q + <usize>begin * f.qRow + (<usize>(keyHead * K) << 2);
  f.k = <usize>a.k + <usize>begin * f.kRow + (<usize>(keyHead * K) << 2);
  f.v = <usize>a.v + <usize>begin * f.vRow + (<usize>(head * V + column) << 2);
  f.o = <usize>a.o + <usize>begin * f.oRow + (<usize>(head * V + column) << 2);
  f.g = <usize>a.g + <usize>begin * f.gRow + (<usize>(f.decay == KEY ? head * K : head) << 2);
  const stateAt = <usize>(n * a.valueHeads + head) * <usize>K;
  const stateOffset = (stateAt * <usize>V + <usize>column) << 2;
  f.initialState = a.flags & INITIAL_STATE ? <usize>a.initialState + stateOffset : 0;
  f.initialNormalizer = a.flags & INITIAL_NORMALIZER ? <usize>a.initialNormalizer + (stateAt << 2) : 0;
  f.finalState = a.flags & FINAL_STATE ? <usize>a.finalState + stateOffset : 0;
  f.finalNormalizer = a.flags & FINAL_NORMALIZER && column == 0 ? <usize>a.finalNormalizer + (stateAt << 2) : 0;
  f.carriedRow = <usize>V << 2;
  return packed ? load<i32>(sequence, 4) - begin : a.time;
}

/** The carried state into scratch. */
export function enter(f: Forward): void {
  loadRows(f.state, f.stateRow, f.initialState, f.carriedRow, f.keyWidth, f.columns);
  loadRows(f.normalizer, f.row, f.initialNormalizer, 0, 1, f.keyWidth);
}

/** The state out of scratch, where it is wanted. */
export function leave(f: Forward): void {
  if (f.finalState) storeRows(f.finalState, f.carriedRow, f.state, f.stateRow, f.keyWidth, f.columns, false);
  if (f.finalNormalizer) storeRow(f.finalNormalizer, f.normalizer, f.keyWidth);
}

/** Records of `count` value heads of a job that are walked side by side, their memory laid into scratch behind them. */
export function openForward(a: ForwardArguments, size: i32, count: i32, scratch: usize): Forward {
  const f = changetype<Forward>(scratch);
  f.decay = a.flags & 3;
  f.keyWidth = a.keyWidth;
  f.size = size;
  setRows(f);
  f.columns = min(a.columns, a.valueWidth);
  f.flags = a.flags;
  f.map = a.flags >> MAP_SHIFT;
  f.scale = a.scale;
  f.eps = a.eps;
  f.qRow = <usize>a.qStride << 2;
  f.kRow = <usize>a.kStride << 2;
  f.vRow = <usize>a.vStride << 2;
  f.oRow = <usize>a.oStride << 2;
  f.gRow = f.decay >= SCALAR ? <usize>a.gStride << 2 : 0;
  let at = layShared(f, scratch + <usize>count * RECORD);
  for (let i = count - 1; i >= 0; i--) {
    const own = scratch + <usize>i * RECORD;
    if (i > 0) memory.copy(own, scratch, RECORD);
    at = layOwn(changetype<Forward>(own), at);
  }
  return f;
}

/** One chunk of one value head; the record then stands at the next. */
function step(f: Forward, rows: i32): void {
  f.rows = rows;
  forwardChunk(f);
  const moved = <usize>rows;
  f.q += moved * f.qRow;
  f.k += moved * f.kRow;
  f.v += moved * f.vRow;
  f.o += moved * f.oRow;
  f.g += moved * f.gRow;
}

/** Brings the rows of a chunk into the caches, all heads' at once. */
function fetch(scratch: usize, count: i32, rows: i32): void {
  let seen: i32 = 0;
  for (let i: i32 = 0; i < count; i++) {
    const f = changetype<Forward>(scratch + <usize>i * RECORD);
    seen |= touchRows(f.q, f.qRow, rows, f.keyWidth);
    seen |= touchRows(f.k, f.kRow, rows, f.keyWidth);
    seen |= touchRows(f.v, f.vRow, rows, f.columns);
    if (f.decay == KEY) seen |= touchRows(f.g, f.gRow, rows, f.keyWidth);
  }
  store<i32>(changetype<Forward>(scratch).reads, seen);
}

/**
 * Value heads (or blocks of their columns) of one sequence side by side, chunk by chunk: their rows are neighbours in
 * memory, so what one brings into the caches the next one uses.
 */
function forwardUnit(a: ForwardArguments, scratch: usize, first: i32, size: i32): void {
  const blocks = (a.valueWidth + a.columns - 1) / a.columns;
  let rows: i32 = 0;
  for (let i: i32 = 0; i < a.together; i++) {
    const f = changetype<Forward>(scratch + <usize>i * RECORD);
    const head = (first + i) / blocks;
    rows = locate(a, f, head / a.valueHeads, head % a.valueHeads, ((first + i) % blocks) * a.columns);
    enter(f);
    prepareHead(f);
  }
  for (let t: i32 = 0; t < rows; t += size) {
    fetch(scratch, a.together, min(size, rows - t));
    for (let i: i32 = 0; i < a.together; i++)
      step(changetype<Forward>(scratch + <usize>i * RECORD), min(size, rows - t));
  }
  for (let i: i32 = 0; i < a.together; i++) leave(changetype<Forward>(scratch + <usize>i * RECORD));
}

// args: see ForwardArguments. One unit is `together` blocks of `columns` value columns, one after another over the value
// heads of one sequence.
export function recurrence_addChunkwise_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<ForwardArguments>(args);
  const size = (a.flags & 3) == KEY ? min(a.chunk, 16) : a.chunk;
  openForward(a, size, a.together, scratch);
  for (let unit = begin; unit < end; unit++) forwardUnit(a, scratch, unit * a.together, size);
}
