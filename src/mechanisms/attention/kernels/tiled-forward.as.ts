import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { exp4 } from "../../../device/wasm/kernels/math.as";
import { Job, rowsAt } from "./job.as";
import { clear, keyAllowed, keyBegin, keyEnd, openScratch, openTile, packQueries, padded, PANEL, scorePanel, seesAll, Tile } from "./tile.as";

/** Starts every running maximum: below any score, yet finite, so that a hidden key (-Infinity) weighs exp(-Infinity) = 0. */
const LOWEST: f32 = -1e30;

/** Statistics of the queries, one row of the scratch each, and the unnormalised outputs [V, queries]. */
@unmanaged
class Running {
  max: usize;
  sum: usize;
  factor: usize;
  outputs: usize;
  /** Values without hidden ones; `rows` is where the tile at hand reads its values. */
  values: usize;
  rows: usize;
  rowBytes: usize;
}

// One unit is one query tile of one head.
export function attention_tiled_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const running = changetype<Running>(scratch);
  const tile = changetype<Tile>(scratch + 64);
  const free = openScratch(job, tile);
  running.max = free;
  running.sum = running.max + tile.wide;
  running.factor = running.sum + tile.wide;
  running.outputs = running.factor + tile.wide;
  running.values = running.outputs + <usize>job.valueWidth * tile.wide;
  for (let unit = begin; unit < end; unit++) {
    if (!openTile(job, tile, unit)) continue;
    packQueries(job, tile);
    forwardTile(job, tile, running);
  }
}

function forwardTile(job: Job, tile: Tile, running: Running): void {
  start(job, tile, running);
  const last = keyEnd(job, tile, tile.count - 1);
  const size = job.tileKeys;
  for (let from = keyBegin(job, tile, 0) / size * size; from < last; from += size) {
    const to = min(from + size, last);
    selectValues(job, tile, running, from, to);
    if (seesAll(job, tile, from, to)) {
      forwardPanel(job, tile, running, from, from, to, 0, tile.columns);
      continue;
    }
    for (let column = 0; column < tile.columns; column += PANEL) {
      const first = max(from, keyBegin(job, tile, column));
      const end = min(to, keyEnd(job, tile, min(column + PANEL, tile.count) - 1));
      if (first < end) forwardPanel(job, tile, running, from, first, end, column, PANEL);
    }
  }
  finish(job, tile, running);
}

function start(job: Job, tile: Tile, running: Running): void {
  const lowest = f32x4.splat(LOWEST);
  const zero = f32x4.splat(0);
  for (let i: usize = 0; i < <usize>tile.columns << 2; i += 16) {
    v128.store(running.max + i, lowest);
    v128.store(running.sum + i, zero);
    let o = running.outputs + i;
    for (let c = 0; c < job.valueWidth; c++) {
      v128.store(o, zero);
      o += tile.wide;
    }
  }
}

/** Values of keys [from, to): in place, or copied with zeros for hidden ones, whatever those hold. */
function selectValues(job: Job, tile: Tile, running: Running, from: i32, to: i32): void {
  running.rows = tile.v + <usize>from * tile.vRow;
  running.rowBytes = tile.vRow;
  if (job.maskBytes == 0) return;
  const row = padded(job.valueWidth);
  for (let j = from; j < to; j++) {
    const dst = running.values + <usize>(j - from) * row;
    if (keyAllowed(job, tile, j)) memory.copy(dst, running.rows + <usize>(j - from) * tile.vRow, <usize>job.valueWidth << 2);
    else clear(dst, job.valueWidth);
  }
  running.rows = running.values;
  running.rowBytes = row;
}

/** Adds keys [from, to) to the outputs of columns [column, column + width). */
function forwardPanel(job: Job, tile: Tile, running: Running, origin: i32, from: i32, to: i32, column: i32, width: i32): void {
  scorePanel(job, tile, origin, from, to, column, width);
  const right = <usize>column << 2;
  const s = tile.scores + <usize>(from - origin) * tile.wide + right;
  for (let i: usize = 0; i < <usize>width << 2; i += 64) {
    if (weigh(s + i, tile.wide, to - from, running.max + right + i, running.sum + right + i, running.factor + right + i))
      rescale(running.outputs + right + i, tile.wide, job.valueWidth, running.factor + right + i);
  }
  gemmBlock(job.valueWidth, width, to - from, running.rows + <usize>(from - origin) * running.rowBytes, 4, running.rowBytes, s, tile.wide, running.outputs + right, tile.wide, 1);
}

/**
 * Turns the scores of one panel into weights exp(score - max) and updates its maxima and sums. True where a maximum
 * rose: what was summed before must then be multiplied by `factor`.
 */
function weigh(s: usize, row: usize, rows: i32, maxima: usize, sums: usize, factors: usize): bool {
  const old0 = v128.load(maxima), old1 = v128.load(maxima, 16), old2 = v128.load(maxima, 32), old3 = v128.load(maxima, 48);
  let m0 = old0, m1 = old1, m2 = old2, m3 = old3;
  let at = s;
  for (let j = 0; j < rows; j++) {
    m0 = f32x4.pmax(m0, v128.load(at));
    m1 = f32x4.pmax(m1, v128.load(at, 16));
    m2 = f32x4.pmax(m2, v128.load(at, 32));
    m3 = f32x4.pmax(m3, v128.load(at, 48));
    at += row;
  }
  const rose = v128.any_true(v128.or(v128.or(f32x4.ne(m0, old0), f32x4.ne(m1, old1)), v128.or(f32x4.ne(m2, old2), f32x4.ne(m3, old3))));
  let l0 = v128.load(sums), l1 = v128.load(sums, 16), l2 = v128.load(sums, 32), l3 = v128.load(sums, 48);
  if (rose) {
    const f0 = exp4(f32x4.sub(old0, m0)), f1 = exp4(f32x4.sub(old1, m1)), f2 = exp4(f32x4.sub(old2, m2)), f3 = exp4(f32x4.sub(old3, m3));
    v128.store(factors, f0);
    v128.store(factors, f1, 16);
    v128.store(factors, f2, 32);
    v128.store(factors, f3, 48);
    v128.store(maxima, m0);
    v128.store(maxima, m1, 16);
    v128.store(maxima, m2, 32);
    v128.store(maxima, m3, 48);
    l0 = f32x4.mul(l0, f0), l1 = f32x4.mul(l1, f1), l2 = f32x4.mul(l2, f2), l3 = f32x4.mul(l3, f3);
  }
  v128.store(sums, l0);
  v128.store(sums, l1, 16);
  v128.store(sums, l2, 32);
  v128.store(sums, l3, 48);
  exponentials(s, row, rows, maxima);
  sumRows(s, row, rows, sums);
  return rose;
}

function exponentials(s: usize, row: usize, rows: i32, maxima: usize): void {
  for (; rows > 0; rows--) {
    v128.store(s, exp4(f32x4.sub(v128.load(s), v128.load(maxima))));
    v128.store(s, exp4(f32x4.sub(v128.load(s, 16), v128.load(maxima, 16))), 16);
    v128.store(s, exp4(f32x4.sub(v128.load(s, 32), v128.load(maxima, 32))), 32);
    v128.store(s, exp4(f32x4.sub(v128.load(s, 48), v128.load(maxima, 48))), 48);
    s += row;
  }
}

function sumRows(s: usize, row: usize, rows: i32, sums: usize): void {
  let l0 = v128.load(sums), l1 = v128.load(sums, 16), l2 = v128.load(sums, 32), l3 = v128.load(sums, 48);
  for (; rows > 0; rows--) {
    l0 = f32x4.add(l0, v128.load(s));
    l1 = f32x4.add(l1, v128.load(s, 16));
    l2 = f32x4.add(l2, v128.load(s, 32));
    l3 = f32x4.add(l3, v128.load(s, 48));
    s += row;
  }
  v128.store(sums, l0);
  v128.store(sums, l1, 16);
  v128.store(sums, l2, 32);
  v128.store(sums, l3, 48);
}

function rescale(o: usize, row: usize, rows: i32, factors: usize): void {
  const f0 = v128.load(factors), f1 = v128.load(factors, 16), f2 = v128.load(factors, 32), f3 = v128.load(factors, 48);
  for (let c = 0; c < rows; c++) {
    v128.store(o, f32x4.mul(v128.load(o), f0));
    v128.store(o, f32x4.mul(v128.load(o, 16), f1), 16);
    v128.store(o, f32x4.mul(v128.load(o, 32), f2), 32);
    v128.store(o, f32x4.mul(v128.load(o, 48), f3), 48);
    o += row;
  }
}

/** Divides by the sums, writes outputs and statistics. A query that sees no key gets zeros and -Infinity. */
function finish(job: Job, tile: Tile, running: Running): void {
  const token = tile.begin + tile.first;
  let statistic = (<usize>(tile.batch * job.time + token) * job.queryHeads + tile.head) << 2;
  for (let i = 0; i < tile.count; i++) {
    const at = <usize>i << 2;
    const sum = load<f32>(running.sum + at);
    const largest = load<f32>(running.max + at);
    const empty = sum == 0;
    store<f32>(running.factor + at, empty ? 0 : 1 / sum);
    store<f32>(job.lse + statistic, empty ? -Infinity : largest + Mathf.log(sum));
    if (job.hasRowMax) store<f32>(job.rowMax + statistic, empty ? -Infinity : largest);
    statistic += <usize>job.queryHeads << 2;
  }
  for (let i: usize = 0; i < <usize>tile.columns << 2; i += 64) rescale(running.outputs + i, tile.wide, job.valueWidth, running.factor + i);
  const o = rowsAt(job.output, job.outputBatch, job.outputToken, job.outputHead, tile.batch, token, tile.head);
  transposeBlock(job.valueWidth, tile.count, running.outputs, tile.wide, o, <usize>job.outputToken << 2);
}
