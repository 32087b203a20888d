import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { finiteRows } from "../../../device/wasm/kernels/finite.as";
import { exp4, storeExp8 } from "../../../device/wasm/kernels/math.as";
import { Job, rowsAt } from "./job.as";
import { keyBegin, keyEnd, openKeys, openScratch, openTile, packQueries, PANEL, scorePanel, stripBytes, Tile, unpackStrips } from "./tile.as";

/** Starts every running maximum: below any score, yet finite, so that a hidden key (-Infinity) weighs exp(-Infinity) = 0. */
const LOWEST: f32 = -1e30;

/** Strips of one panel: statistics of its queries and unnormalised outputs [V, queries]. */
@unmanaged
class Running {
  max: usize;
  sum: usize;
  factor: usize;
  outputs: usize;
}

// One unit is one query tile of one head.
export function attention_tiled_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const running = changetype<Running>(scratch);
  const tile = changetype<Tile>(scratch + 64);
  running.max = openScratch(job, tile, PANEL, PANEL << 2);
  running.sum = running.max + stripBytes(job, tile, 1);
  running.factor = running.sum + stripBytes(job, tile, 1);
  running.outputs = running.factor + stripBytes(job, tile, 1);
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
  for (let origin = keyBegin(job, tile, 0) / size * size; origin < last; origin += size) {
    const next = min(origin + size, last);
    openKeys(job, tile, origin, next);
    for (let column = 0; column < tile.columns; column += PANEL) {
      const from = max(origin, keyBegin(job, tile, column));
      const to = min(next, keyEnd(job, tile, min(column + PANEL, tile.count) - 1));
      if (from < to) forwardPanel(job, tile, running, origin, from, to, column);
    }
  }
  finish(job, tile, running);
}

function start(job: Job, tile: Tile, running: Running): void {
  const lowest = f32x4.splat(LOWEST);
  for (let i: usize = 0; i < <usize>tile.columns << 2; i += 16) v128.store(running.max + i, lowest);
  memory.fill(running.sum, 0, <usize>tile.columns << 2);
  memory.fill(running.outputs, 0, <usize>(tile.columns * job.valueWidth) << 2);
}

/** Adds keys [from, to) of the key tile to the outputs of the panel at a column. */
function forwardPanel(job: Job, tile: Tile, running: Running, origin: i32, from: i32, to: i32, column: i32): void {
  scorePanel(job, tile, origin, from, to, column, PANEL);
  const s = tile.scores + <usize>(from - origin) * tile.wide;
  const at = <usize>column << 2;
  const outputs = running.outputs + at * job.valueWidth;
  if (weigh(s, tile.wide, to - from, running.max + at, running.sum + at, running.factor + at))
    rescale(outputs, tile.wide, job.valueWidth, running.factor + at);
  const values = tile.valueRows + <usize>(from - origin) * tile.valueRow;
  if (mayMix(job, tile, values, from, to, column))
    gemmBlock(job.valueWidth, PANEL, to - from, values, 4, tile.valueRow, s, tile.wide, outputs, tile.wide, 1);
  else addSeen(job, tile, s, values, outputs, from, to, column);
}

/** Whether keys that only some queries of a panel see may weigh 0 for the others: not where 0 times a value is no 0. */
function mayMix(job: Job, tile: Tile, values: usize, from: i32, to: i32, column: i32): bool {
  const first = min(to, keyBegin(job, tile, column + PANEL - 1));
  const last = max(from, keyEnd(job, tile, column));
  return finiteRows(values, tile.valueRow, first - from, job.valueWidth)
    && finiteRows(values + <usize>(last - from) * tile.valueRow, tile.valueRow, to - last, job.valueWidth);
}

/** The same sums key after key, each for the queries that see it. */
function addSeen(job: Job, tile: Tile, s: usize, values: usize, outputs: usize, from: i32, to: i32, column: i32): void {
  const position = tile.first + tile.shift + column;
  for (let j = from; j < to; j++) {
    const first = job.causal ? max(0, j - position) : 0;
    const last = job.window > 0 ? min(PANEL, j - position + job.window) : PANEL;
    const at = <usize>first << 2;
    if (first < last) gemmBlock(job.valueWidth, last - first, 1, values, 4, tile.valueRow, s + at, tile.wide, outputs + at, tile.wide, 1);
    s += tile.wide;
    values += tile.valueRow;
  }
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
    storeExp8(s, f32x4.sub(v128.load(s), v128.load(maxima)), f32x4.sub(v128.load(s, 16), v128.load(maxima, 16)));
    storeExp8(s + 32, f32x4.sub(v128.load(s, 32), v128.load(maxima, 32)), f32x4.sub(v128.load(s, 48), v128.load(maxima, 48)));
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
  const o = rowsAt(job.output, job.outputBatch, job.outputToken, job.outputHead, tile.batch, token, tile.head);
  for (let at: usize = 0; at < <usize>tile.columns << 2; at += PANEL << 2)
    rescale(running.outputs + at * job.valueWidth, tile.wide, job.valueWidth, running.factor + at);
  unpackStrips(tile, job.valueWidth, running.outputs, o, <usize>job.outputToken << 2);
}
