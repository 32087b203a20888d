// A tile of queries of one head and the panels of keys it sees. Scores are kept transposed, [keys, queries]: keys and
// values are then plain left operands of a block product, and the statistics of a row are vectors over queries.
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { copyRow } from "../../../device/wasm/kernels/lanes.as";
import { Job, rowsAt } from "./job.as";

/** Queries that are scored, masked and normalised together: the widest register panel of any tier. */
export const PANEL: i32 = 16;

/** The tile at hand, at the beginning of a thread's scratch memory. Addresses in bytes, strides in bytes. */
@unmanaged
export class Tile {
  batch: i32;
  head: i32;
  keyHead: i32;
  /** First query, counted within its sequence, and how many there are. */
  first: i32;
  count: i32;
  /** `count` rounded up to whole panels. */
  columns: i32;
  /** Keys of the sequence; query i sees keys up to i + shift where the job is causal. */
  keys: i32;
  shift: i32;
  /** First token and first key of the sequence, counted within the batch row. */
  begin: i32;
  keyBegin: i32;
  /** Batch row of keys and values. */
  slot: i32;
  k: usize;
  v: usize;
  /** Address of the sequence's first mask entry. */
  mask: usize;
  bias: usize;
  /** Keys and values of the key tile at hand, and bytes between their rows. */
  keyRows: usize;
  keyRow: usize;
  valueRows: usize;
  valueRow: usize;
  /** Where they are copied to. */
  keyCopy: usize;
  valueCopy: usize;
  /**
   * Scratch matrices with a query in each column come in strips of `strip` columns, one strip after another, rows
   * `wide` bytes apart: scaled queries [K, queries] and the scores of one strip [keys, queries].
   */
  strip: i32;
  wide: usize;
  qT: usize;
  scores: usize;
}

/** Room for the Tile itself, in bytes. */
export const TILE_BYTES: usize = 192;

/** Bytes of a row of columns: 16 floats more than needed, so that rows do not share cache sets. */
// @ts-ignore: decorator
@inline export function padded(columns: i32): usize {
  return <usize>(((columns + 15) & ~15) + 16) << 2;
}

/** Offset of a column in a scratch matrix of so many rows. */
// @ts-ignore: decorator
@inline export function columnAt(tile: Tile, rows: i32, column: i32): usize {
  return <usize>(column / tile.strip * rows) * tile.wide + (<usize>(column % tile.strip) << 2);
}

/** Finds the sequence of a row in which its tile number `at` lies; false where the row has fewer tiles. */
function findSequence(job: Job, tile: Tile, at: i32, size: i32): bool {
  for (let n = 0; n < job.sequences; n++) {
    const begin = load<i32>(job.cuSeqlens + (<usize>n << 2));
    const length = load<i32>(job.cuSeqlens + (<usize>n << 2), 4) - begin;
    const tiles = (length + size - 1) / size;
    if (at < tiles) {
      tile.first = at * size;
      openSequence(job, tile, begin, length);
      return true;
    }
    at -= tiles;
  }
  return false;
}

function openSequence(job: Job, tile: Tile, begin: i32, length: i32): void {
  tile.begin = begin;
  tile.keyBegin = begin;
  tile.keys = length;
  tile.shift = job.offset;
  tile.count = min(job.tileQueries, length - tile.first);
}

/** Sets the sequence of a whole batch row. */
function openRow(job: Job, tile: Tile): void {
  tile.begin = 0;
  tile.keyBegin = 0;
  tile.keys = job.keyTime;
  tile.shift = job.offset;
  tile.slot = tile.batch;
  if (job.cached) {
    tile.slot = load<i32>(job.slots + (<usize>tile.batch << 2));
    tile.keys = load<i32>(job.lengths + (<usize>tile.batch << 2));
    tile.shift += tile.keys - job.time;
  }
}

/** Causal tiles cost more the later they are: taking one from each end in turn makes every run of units cost alike. */
// @ts-ignore: decorator
@inline function mirrored(i: i32, n: i32): i32 {
  return i & 1 ? n - 1 - (i >> 1) : i >> 1;
}

/** Opens query tile `unit` of all heads and batch rows; false where packed sequences need fewer tiles. */
export function openTile(job: Job, tile: Tile, unit: i32): bool {
  const row = unit / job.tilesPerRow;
  const at = mirrored(unit % job.tilesPerRow, job.tilesPerRow);
  return openTileOf(job, tile, row / job.queryHeads, row % job.queryHeads, at);
}

/** Opens query tile `at` of one head of one batch row. */
export function openTileOf(job: Job, tile: Tile, batch: i32, head: i32, at: i32): bool {
  tile.batch = batch;
  tile.slot = batch;
  tile.head = head;
  tile.keyHead = head / (job.queryHeads / job.keyHeads);
  if (job.sequences > 0) {
    if (!findSequence(job, tile, at, job.tileQueries)) return false;
  } else {
    openRow(job, tile);
    tile.first = at * job.tileQueries;
    tile.count = min(job.tileQueries, job.time - tile.first);
  }
  tile.columns = (tile.count + PANEL - 1) & ~(PANEL - 1);
  tile.k = rowsAt(job.k, job.kBatch, job.kToken, job.kHead, tile.slot, tile.keyBegin, tile.keyHead);
  tile.v = rowsAt(job.v, job.vBatch, job.vToken, job.vHead, tile.slot, tile.keyBegin, tile.keyHead);
  tile.mask = job.keyMask + (<usize>batch * job.keyTime + tile.keyBegin) * job.maskBytes;
  const row = <usize>batch * job.biasBatch + <usize>head * job.biasHead + <usize>(tile.begin + tile.first) * job.biasRow;
  tile.bias = job.bias + ((row + tile.keyBegin) << 2);
  return true;
}

/** One past the last key that any query of columns [0, last] sees. */
// @ts-ignore: decorator
@inline export function keyEnd(job: Job, tile: Tile, last: i32): i32 {
  return job.causal ? max(0, min(tile.keys, tile.first + last + tile.shift + 1)) : tile.keys;
}

/** The first key that query `column` may see. */
// @ts-ignore: decorator
@inline export function keyBegin(job: Job, tile: Tile, column: i32): i32 {
  return job.window > 0 ? max(0, tile.first + column + tile.shift - job.window + 1) : 0;
}

/** Whether every query of columns [first, last] sees all keys of [from, to). */
// @ts-ignore: decorator
@inline export function seesAll(job: Job, tile: Tile, first: i32, last: i32, from: i32, to: i32): bool {
  return to <= keyEnd(job, tile, first) && from >= keyBegin(job, tile, last);
}

/** Zeros from an address on. */
// @ts-ignore: decorator
@inline export function clear(at: usize, floats: i32): void {
  for (; floats > 0; floats--, at += 4) store<f32>(at, 0);
}

/** dst[j, i] = scale · src[i, j], with zero columns up to `columns`. */
export function packTransposed(rows: i32, columns: i32, width: i32, src: usize, srcRow: usize, dst: usize, dstRow: usize, scale: f32): void {
  transposeBlock(rows, width, src, srcRow, dst, dstRow);
  const factor = f32x4.splat(scale);
  for (let j = 0; j < width; j++) {
    clear(dst + (<usize>rows << 2), columns - rows);
    for (let i = 0; i < columns; i += 4) {
      const at = dst + (<usize>i << 2);
      v128.store(at, f32x4.mul(v128.load(at), factor));
    }
    dst += dstRow;
  }
}

/** Rows of the tile's queries become columns, strip after strip, times a factor. */
export function packStrips(tile: Tile, width: i32, src: usize, srcRow: usize, dst: usize, scale: f32): void {
  for (let column = 0; column < tile.columns; column += tile.strip) {
    const rows = min(tile.strip, tile.count - column);
    const columns = min(tile.strip, tile.columns - column);
    packTransposed(rows, columns, width, src + <usize>column * srcRow, srcRow, dst + columnAt(tile, width, column), tile.wide, scale);
  }
}

/** The other way round. */
export function unpackStrips(tile: Tile, width: i32, src: usize, dst: usize, dstRow: usize): void {
  for (let column = 0; column < tile.columns; column += tile.strip) {
    const rows = min(tile.strip, tile.count - column);
    transposeBlock(width, rows, src + columnAt(tile, width, column), tile.wide, dst + <usize>column * dstRow, dstRow);
  }
}

/** Scratch after the Tile: where the queries, keys, values and scores go; returns the first free address. */
export function openScratch(job: Job, tile: Tile, strip: i32, wide: usize): usize {
  tile.strip = strip;
  tile.wide = wide;
  tile.qT = changetype<usize>(tile) + TILE_BYTES;
  tile.scores = tile.qT + stripBytes(job, tile, job.keyWidth);
  tile.keyCopy = tile.scores + <usize>job.tileKeys * wide;
  tile.valueCopy = tile.keyCopy + <usize>(job.tileKeys * job.keyWidth << 2);
  return tile.valueCopy + <usize>(job.tileKeys * job.valueWidth << 2);
}

/** Bytes of a scratch matrix of so many rows over all strips. */
export function stripBytes(job: Job, tile: Tile, rows: i32): usize {
  return <usize>((job.tileQueries + tile.strip - 1) / tile.strip * rows) * tile.wide;
}

/** Loads the queries of the tile, times the scale. */
export function packQueries(job: Job, tile: Tile): void {
  const q = rowsAt(job.q, job.qBatch, job.qToken, job.qHead, tile.batch, tile.begin + tile.first, tile.head);
  packStrips(tile, job.keyWidth, q, <usize>job.qToken << 2, tile.qT, job.scale);
}

/** From so many queries on, keys and values are read often enough to bring their rows together first. */
const COPY_FROM: i32 = 48;

/** Makes keys [from, to) the key tile at hand: in place, or copied, with zeros for hidden ones whatever those hold. */
export function openKeys(job: Job, tile: Tile, from: i32, to: i32): void {
  const kRow = <usize>job.kToken << 2, vRow = <usize>job.vToken << 2;
  tile.keyRows = tile.k + <usize>from * kRow;
  tile.keyRow = kRow;
  tile.valueRows = tile.v + <usize>from * vRow;
  tile.valueRow = vRow;
  if (job.maskBytes == 0 && tile.count < COPY_FROM) return;
  const keyBytes = <usize>job.keyWidth << 2, valueBytes = <usize>job.valueWidth << 2;
  for (let j = from; j < to; j++) {
    const n = <usize>(j - from);
    const allowed = keyAllowed(job, tile, j);
    const key = tile.keyCopy + n * keyBytes, value = tile.valueCopy + n * valueBytes;
    if (allowed) {
      copyRow(key, tile.keyRows + n * kRow, keyBytes);
      copyRow(value, tile.valueRows + n * vRow, valueBytes);
    } else {
      memory.fill(key, 0, keyBytes);
      memory.fill(value, 0, valueBytes);
    }
  }
  tile.keyRows = tile.keyCopy;
  tile.keyRow = keyBytes;
  tile.valueRows = tile.valueCopy;
  tile.valueRow = valueBytes;
}

/** Whether key j may be seen at all. */
// @ts-ignore: decorator
@inline export function keyAllowed(job: Job, tile: Tile, j: i32): bool {
  if (job.maskBytes == 1) return load<u8>(tile.mask + <usize>j) != 0;
  if (job.maskBytes == 4) return load<i32>(tile.mask + (<usize>j << 2)) != 0;
  return true;
}

/**
 * Scores of keys [from, to) against columns [column, column + width) of one strip, -Infinity where a query does not see
 * a key; row j of the scores is key j - origin, the first of the key tile at hand.
 */
export function scorePanel(job: Job, tile: Tile, origin: i32, from: i32, to: i32, column: i32, width: i32): void {
  const s = tile.scores + columnAt(tile, 0, column) + <usize>(from - origin) * tile.wide;
  const k = tile.keyRows + <usize>(from - origin) * tile.keyRow;
  gemmBlock(to - from, width, job.keyWidth, k, tile.keyRow, 4, tile.qT + columnAt(tile, job.keyWidth, column), tile.wide, s, tile.wide, 0);
  if (job.hasBias) addBias(job, tile, s, from, to, column, width);
  if (job.maskBytes != 0) maskKeys(job, tile, s, from, to, width);
  const firstEnd = keyEnd(job, tile, column);
  const lastBegin = keyBegin(job, tile, column + width - 1);
  if (firstEnd < to || lastBegin > from) maskPositions(job, tile, s, from, to, column, width);
}

function addBias(job: Job, tile: Tile, s: usize, from: i32, to: i32, column: i32, width: i32): void {
  const columns = min(width, tile.count - column);
  const row = <usize>job.biasRow << 2;
  let bias = tile.bias + <usize>column * row + (<usize>from << 2);
  let i = 0;
  for (; i + 4 <= columns; i += 4) {
    addBiasRows(s, tile.wide, bias, row, to - from);
    bias += row << 2;
    s += 16;
  }
  for (; i < columns; i++) {
    let at = s;
    for (let j: usize = 0; j < <usize>(to - from) << 2; j += 4) {
      store<f32>(at, load<f32>(at) + load<f32>(bias + j));
      at += tile.wide;
    }
    bias += row;
    s += 4;
  }
}

/** The biases of four queries, turned four keys at a time. */
function addBiasRows(s: usize, wide: usize, bias: usize, row: usize, keys: i32): void {
  const row2 = row << 1, row3 = row2 + row;
  for (; keys >= 4; keys -= 4) {
    const a = v128.load(bias), b = v128.load(bias + row), c = v128.load(bias + row2), d = v128.load(bias + row3);
    const low = i32x4.shuffle(a, b, 0, 4, 1, 5), high = i32x4.shuffle(a, b, 2, 6, 3, 7);
    const low2 = i32x4.shuffle(c, d, 0, 4, 1, 5), high2 = i32x4.shuffle(c, d, 2, 6, 3, 7);
    v128.store(s, f32x4.add(v128.load(s), i64x2.shuffle(low, low2, 0, 2)));
    s += wide;
    v128.store(s, f32x4.add(v128.load(s), i64x2.shuffle(low, low2, 1, 3)));
    s += wide;
    v128.store(s, f32x4.add(v128.load(s), i64x2.shuffle(high, high2, 0, 2)));
    s += wide;
    v128.store(s, f32x4.add(v128.load(s), i64x2.shuffle(high, high2, 1, 3)));
    s += wide;
    bias += 16;
  }
  for (; keys > 0; keys--) {
    const x = f32x4(load<f32>(bias), load<f32>(bias + row), load<f32>(bias + row2), load<f32>(bias + row3));
    v128.store(s, f32x4.add(v128.load(s), x));
    s += wide;
    bias += 4;
  }
}

function maskKeys(job: Job, tile: Tile, s: usize, from: i32, to: i32, width: i32): void {
  const hidden = f32x4.splat(-Infinity);
  for (let j = from; j < to; j++) {
    if (!keyAllowed(job, tile, j)) {
      for (let i = 0; i < width; i += 4) v128.store(s + (<usize>i << 2), hidden);
    }
    s += tile.wide;
  }
}

function maskPositions(job: Job, tile: Tile, s: usize, from: i32, to: i32, column: i32, width: i32): void {
  const hidden = f32x4.splat(-Infinity);
  const unbounded = i32x4.splat(-2147483648);
  const open = i32x4.splat(2147483647);
  const window = i32x4.splat(job.window);
  for (let i = 0; i < width; i += 4) {
    const position = i32x4.add(i32x4.splat(tile.first + tile.shift + column + i), i32x4(0, 1, 2, 3));
    const last = job.causal ? position : open;
    const before = job.window > 0 ? i32x4.sub(position, window) : unbounded;
    let at = s + (<usize>i << 2);
    for (let j = from; j < to; j++) {
      const key = i32x4.splat(j);
      const sees = v128.and(i32x4.le_s(key, last), i32x4.gt_s(key, before));
      v128.store(at, v128.bitselect(v128.load(at), hidden, sees));
      at += tile.wide;
    }
  }
}
