// Gradients of one tile: its weights are recomputed from the saved log-sum-exp, so nothing of size T×T is ever kept.
//   P = exp(S - lse)    dP = dO Vᵀ    dS = P (dP - delta)    dV += Pᵀ dO    dK += dSᵀ (scale Q)    dQ += scale dS K
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { exp4, storeExp8 } from "../../../device/wasm/kernels/math.as";
import { Job, rowsAt } from "./job.as";
import { clear, columnAt, keyAllowed, keyBegin, keyEnd, openKeys, openScratch, packQueries, packStrips, padded, PANEL, scorePanel, seesAll, stripBytes, Tile, TILE_BYTES, unpackStrips } from "./tile.as";

/** Stands for the log-sum-exp of a query that sees nothing or is not there: every weight becomes exp(-1e30) = 0. */
const NOTHING: f32 = 1e30;

/** Columns of a strip: also the inner axis of the products for keys and values. */
const STRIP: i32 = 64;

/** What the backward passes keep in scratch beside the Tile. Matrices with a query in each column come in strips. */
@unmanaged
export class Gradient {
  tile: Tile;
  /** Queries [queries, K], scaled, and output gradients [queries, V]. */
  queries: usize;
  queryRow: usize;
  dOutput: usize;
  dOutputRow: usize;
  /** Output gradients [V, queries], query gradients [K, queries], score gradients of one strip [keys, queries]. */
  dOutputT: usize;
  dQueriesT: usize;
  dScores: usize;
  /** One number per query. */
  lse: usize;
  delta: usize;
  rowMax: usize;
  dRowMax: usize;
  /** Gradients of keys and values of the sequence's first key, and bytes between rows. */
  dK: usize;
  dKRow: usize;
  dV: usize;
  dVRow: usize;
  /** Gradient of the bias between the tile's first query and the sequence's first key; one panel [queries, keys]. */
  dBias: usize;
  dBiasPanel: usize;
}

/** Lays out the scratch memory of a backward pass. */
export function openGradient(job: Job, scratch: usize): Gradient {
  const g = changetype<Gradient>(scratch);
  g.tile = changetype<Tile>(scratch + TILE_BYTES);
  let free = openScratch(job, g.tile, STRIP, padded(STRIP));
  const numbers = <usize>(job.tileQueries + PANEL) << 2;
  g.queryRow = padded(job.keyWidth);
  g.dOutputRow = padded(job.valueWidth);
  g.queries = free; free += <usize>job.tileQueries * g.queryRow;
  g.dOutput = free; free += <usize>job.tileQueries * g.dOutputRow;
  g.dOutputT = free; free += stripBytes(job, g.tile, job.valueWidth);
  g.dQueriesT = free; free += stripBytes(job, g.tile, job.keyWidth);
  g.dScores = free; free += <usize>job.tileKeys * g.tile.wide;
  g.lse = free; free += numbers;
  g.delta = free; free += numbers;
  g.rowMax = free; free += numbers;
  g.dRowMax = free; free += numbers;
  g.dBiasPanel = free;
  g.dKRow = <usize>job.dKToken << 2;
  g.dVRow = <usize>job.dVToken << 2;
  return g;
}

/** Adds the tile's share over keys [clipFrom, clipTo) of its sequence to the gradients that `wanted` names. */
export function gradeTile(job: Job, g: Gradient, clipFrom: i32, clipTo: i32, wanted: i32): void {
  const tile = g.tile;
  const lo = max(clipFrom, keyBegin(job, tile, 0));
  const hi = min(clipTo, keyEnd(job, tile, tile.count - 1));
  if (wanted & 1) memory.fill(g.dQueriesT, 0, stripBytes(job, tile, job.keyWidth));
  if (lo >= hi) return;
  loadTile(job, g);
  const size = job.tileKeys;
  for (let at = lo / size * size; at < hi; at += size) {
    const origin = max(at, lo);
    const next = min(at + size, hi);
    openKeys(job, tile, origin, next);
    for (let column = 0; column < tile.columns; column += STRIP) gradeStrip(job, g, origin, next, column, wanted);
  }
}

function gradeStrip(job: Job, g: Gradient, origin: i32, next: i32, column: i32, wanted: i32): void {
  const tile = g.tile;
  const end = min(column + STRIP, tile.columns);
  if (seesAll(job, tile, column, min(end, tile.count) - 1, origin, next)) {
    gradePanel(job, g, origin, origin, next, column, end - column, wanted);
    return;
  }
  for (; column < end; column += PANEL) {
    const from = max(origin, keyBegin(job, tile, column));
    const to = min(next, keyEnd(job, tile, min(column + PANEL, tile.count) - 1));
    if (from < to) gradePanel(job, g, origin, from, to, column, PANEL, wanted);
  }
}

function loadTile(job: Job, g: Gradient): void {
  const tile = g.tile;
  const token = tile.begin + tile.first;
  packQueries(job, tile);
  unpackStrips(tile, job.keyWidth, tile.qT, g.queries, g.queryRow);
  const dOutput = rowsAt(job.dOutput, job.dOutputBatch, job.dOutputToken, job.dOutputHead, tile.batch, token, tile.head);
  packStrips(tile, job.valueWidth, dOutput, <usize>job.dOutputToken << 2, g.dOutputT, 1);
  unpackStrips(tile, job.valueWidth, g.dOutputT, g.dOutput, g.dOutputRow);
  let statistic = (<usize>(tile.batch * job.time + token) * job.queryHeads + tile.head) << 2;
  for (let i = 0; i < tile.columns; i++) {
    const at = <usize>i << 2;
    const there = i < tile.count;
    const lse = there ? load<f32>(job.lse + statistic) : -Infinity;
    store<f32>(g.lse + at, lse == -Infinity ? NOTHING : lse);
    store<f32>(g.delta + at, there ? load<f32>(job.delta + statistic) : 0);
    if (job.hasRowMax) {
      store<f32>(g.rowMax + at, there ? load<f32>(job.rowMax + statistic) : -Infinity);
      store<f32>(g.dRowMax + at, there ? load<f32>(job.dRowMax + statistic) : 0);
    }
    statistic += <usize>job.queryHeads << 2;
  }
  g.dK = rowsAt(job.dK, job.dKBatch, job.dKToken, job.dKHead, tile.batch, tile.keyBegin, tile.keyHead);
  g.dV = rowsAt(job.dV, job.dVBatch, job.dVToken, job.dVHead, tile.batch, tile.keyBegin, tile.keyHead);
}

function gradePanel(job: Job, g: Gradient, origin: i32, from: i32, to: i32, column: i32, width: i32, wanted: i32): void {
  const tile = g.tile;
  const wide = tile.wide;
  const keys = to - from;
  const down = <usize>(from - origin);
  const inStrip = down * wide + columnAt(tile, 0, column);
  const p = tile.scores + inStrip;
  const dS = g.dScores + inStrip;
  scorePanel(job, tile, origin, from, to, column, width);
  gemmBlock(keys, width, job.valueWidth, tile.valueRows + down * tile.valueRow, tile.valueRow, 4, g.dOutputT + columnAt(tile, job.valueWidth, column), wide, dS, wide, 0);
  for (let i: usize = 0; i < <usize>width << 2; i += 64) {
    const number = (<usize>column << 2) + i;
    if (job.hasRowMax) gradeWithMaximum(p + i, dS + i, wide, keys, number, g);
    else grade(p + i, dS + i, wide, keys, g.lse + number, g.delta + number);
  }
  if (job.maskBytes != 0) hideKeys(job, tile, p, dS, from, to, width);
  if (wanted & 2) {
    const count = min(width, tile.count - column);
    gemmBlock(keys, job.valueWidth, count, p, wide, 4, g.dOutput + <usize>column * g.dOutputRow, g.dOutputRow, g.dV + <usize>from * g.dVRow, g.dVRow, 1);
    gemmBlock(keys, job.keyWidth, count, dS, wide, 4, g.queries + <usize>column * g.queryRow, g.queryRow, g.dK + <usize>from * g.dKRow, g.dKRow, 1);
  }
  if (wanted & 4) addBiasGradient(job, g, dS, from, keys, column, width);
  if (wanted & 1) gemmBlock(job.keyWidth, width, keys, tile.keyRows + down * tile.keyRow, 4, tile.keyRow, dS, wide, g.dQueriesT + columnAt(tile, job.keyWidth, column), wide, 1);
}

/** One panel of scores S becomes P and of dP becomes dS. */
function grade(p: usize, dS: usize, row: usize, rows: i32, lse: usize, delta: usize): void {
  for (; rows > 0; rows--) {
    storeExp8(p, f32x4.sub(v128.load(p), v128.load(lse)), f32x4.sub(v128.load(p, 16), v128.load(lse, 16)));
    storeExp8(p + 32, f32x4.sub(v128.load(p, 32), v128.load(lse, 32)), f32x4.sub(v128.load(p, 48), v128.load(lse, 48)));
    const a = f32x4.mul(v128.load(p), f32x4.sub(v128.load(dS), v128.load(delta)));
    const b = f32x4.mul(v128.load(p, 16), f32x4.sub(v128.load(dS, 16), v128.load(delta, 16)));
    v128.store(dS, a);
    v128.store(dS, b, 16);
    const c = f32x4.mul(v128.load(p, 32), f32x4.sub(v128.load(dS, 32), v128.load(delta, 32)));
    const d = f32x4.mul(v128.load(p, 48), f32x4.sub(v128.load(dS, 48), v128.load(delta, 48)));
    v128.store(dS, c, 32);
    v128.store(dS, d, 48);
    p += row;
    dS += row;
  }
}

/** The same where the largest score of a query has a gradient of its own: its key is found by equality, bit for bit. */
function gradeWithMaximum(p: usize, dS: usize, row: usize, rows: i32, right: usize, g: Gradient): void {
  for (; rows > 0; rows--) {
    for (let i: usize = 0; i < 64; i += 16) {
      const s = v128.load(p + i);
      const weight = exp4(f32x4.sub(s, v128.load(g.lse + right + i)));
      const share = f32x4.mul(weight, f32x4.sub(v128.load(dS + i), v128.load(g.delta + right + i)));
      const largest = v128.and(f32x4.eq(s, v128.load(g.rowMax + right + i)), v128.load(g.dRowMax + right + i));
      v128.store(p + i, weight);
      v128.store(dS + i, f32x4.add(share, largest));
    }
    p += row;
    dS += row;
  }
}

/** A hidden key has no weight and no gradient, whatever it holds. */
function hideKeys(job: Job, tile: Tile, p: usize, dS: usize, from: i32, to: i32, width: i32): void {
  for (let j = from; j < to; j++) {
    if (!keyAllowed(job, tile, j)) {
      clear(p, width);
      clear(dS, width);
    }
    p += tile.wide;
    dS += tile.wide;
  }
}

/** dBias += dS, turned around to [queries, keys]. */
function addBiasGradient(job: Job, g: Gradient, dS: usize, from: i32, keys: i32, column: i32, width: i32): void {
  const row = padded(job.tileKeys);
  for (let first = 0; first < width; first += PANEL) {
    const count = min(PANEL, g.tile.count - column - first);
    transposeBlock(keys, count, dS + (<usize>first << 2), g.tile.wide, g.dBiasPanel, row);
    for (let i = 0; i < count; i++) {
      const from4 = g.dBiasPanel + <usize>i * row;
      const to4 = g.dBias + ((<usize>(column + first + i) * job.keyTime + from) << 2);
      for (let j: usize = 0; j < <usize>keys << 2; j += 4) store<f32>(to4 + j, load<f32>(to4 + j) + load<f32>(from4 + j));
    }
  }
}

/** Writes the query gradients of the tile. */
export function finishQueryGradient(job: Job, g: Gradient): void {
  const tile = g.tile;
  const scale = f32x4.splat(job.scale);
  const end = g.dQueriesT + stripBytes(job, tile, job.keyWidth);
  for (let at = g.dQueriesT; at < end; at += 16) v128.store(at, f32x4.mul(v128.load(at), scale));
  const dQ = rowsAt(job.dQ, job.dQBatch, job.dQToken, job.dQHead, tile.batch, tile.begin + tile.first, tile.head);
  unpackStrips(tile, job.keyWidth, g.dQueriesT, dQ, <usize>job.dQToken << 2);
}
