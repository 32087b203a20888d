// Attention inside the groups of the sorted sequence, read from and written to where tokens stand.
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { log4 } from "../../../device/wasm/kernels/log.as";
import { storeExp8 } from "../../../device/wasm/kernels/math.as";
import { floats, gatherRows, Group, Job, LOWEST, openGroup, openScratch, scoreColumns } from "./group.as";

/** Queries that are scored together: the fewer, the fewer hidden pairs; the columns of the tier's widest tile. */
const PANEL: i32 = TIER == 2 ? 16 : 8;

// args: as Job. Writes output [R,B,T,H,V] and lse [R,B,T,H], −Infinity where a round has nothing new for a query. One unit
// is one group of one round of one head. Scratch: as openScratch for 16 columns, scores, outputs twice, 3 rows of numbers.
export function lsh_groups_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const g = openScratch(job, scratch, PANEL);
  const rows = g.columns + floats(PANEL * job.keyWidth);
  const outputs = rows + floats(PANEL * max(job.keyWidth, job.valueWidth));
  const numbers = outputs + floats(PANEL * job.valueWidth);
  const s = numbers + floats(3 * PANEL);
  for (let unit = begin; unit < end; unit++) {
    openGroup(job, g, unit);
    for (let column = 0; column < g.count; column += PANEL) {
      const count = min(PANEL, g.count - column);
      const tokens = g.tokens + (<usize>(g.before + column) << 2);
      gatherRows(tokens, count, g.q, job.qToken, job.keyWidth, rows);
      scoreColumns(job, g, column, PANEL, rows, s);
      for (let c: usize = 0; c < <usize>PANEL << 2; c += 32) weigh(s + c, g.to - g.from, numbers + c);
      const valueBytes = <usize>job.valueWidth << 2;
      const values = g.valueRows + <usize>g.from * valueBytes;
      gemmBlock(job.valueWidth, PANEL, g.to - g.from, values, 4, valueBytes, s, PANEL << 2, outputs, PANEL << 2, 0);
      for (let c: usize = 0; c < <usize>PANEL << 2; c += 32) divide(outputs + c, job.valueWidth, numbers + c);
      transposeBlock(job.valueWidth, count, outputs, PANEL << 2, rows, valueBytes);
      scatter(job, g, tokens, count, rows, numbers + (PANEL << 3));
    }
  }
}

/** Scores of eight queries become weights exp(score − max); row 0 of the numbers gets 1 / sum, row 2 the log-sum-exp. */
function weigh(s: usize, rows: i32, numbers: usize): void {
  const row: usize = PANEL << 2;
  let m0 = f32x4.splat(LOWEST), m1 = m0, m2 = m0, m3 = m0;
  let at = s, n = rows;
  for (; n >= 2; n -= 2) {
    m0 = f32x4.pmax(m0, v128.load(at));
    m1 = f32x4.pmax(m1, v128.load(at, 16));
    at += row;
    m2 = f32x4.pmax(m2, v128.load(at));
    m3 = f32x4.pmax(m3, v128.load(at, 16));
    at += row;
  }
  if (n > 0) {
    m0 = f32x4.pmax(m0, v128.load(at));
    m1 = f32x4.pmax(m1, v128.load(at, 16));
  }
  m0 = f32x4.pmax(m0, m2), m1 = f32x4.pmax(m1, m3);
  v128.store(numbers, m0);
  v128.store(numbers, m1, 16);
  exponentials(s, rows, numbers);
  sumRows(s, rows, numbers + row);
  for (let c: usize = 0; c < 32; c += 16) closeQueries(numbers + c);
}

/** Four queries at a time: where tier C pairs this for eight, V8 of Node 24 stops with "unreachable code". */
function closeQueries(numbers: usize): void {
  const row: usize = PANEL << 2;
  const sum = v128.load(numbers + row);
  v128.store(numbers + 2 * row, f32x4.add(v128.load(numbers), log4(sum)));
  v128.store(numbers, v128.andnot(f32x4.div(f32x4.splat(1), sum), f32x4.eq(sum, f32x4.splat(0))));
}

function exponentials(s: usize, rows: i32, maxima: usize): void {
  const m0 = v128.load(maxima), m1 = v128.load(maxima, 16);
  for (; rows > 0; rows--) {
    storeExp8(s, f32x4.sub(v128.load(s), m0), f32x4.sub(v128.load(s, 16), m1));
    s += PANEL << 2;
  }
}

function sumRows(s: usize, rows: i32, sums: usize): void {
  let l0 = f32x4.splat(0), l1 = l0, l2 = l0, l3 = l0;
  for (; rows >= 2; rows -= 2) {
    l0 = f32x4.add(l0, v128.load(s));
    l1 = f32x4.add(l1, v128.load(s, 16));
    s += PANEL << 2;
    l2 = f32x4.add(l2, v128.load(s));
    l3 = f32x4.add(l3, v128.load(s, 16));
    s += PANEL << 2;
  }
  if (rows > 0) {
    l0 = f32x4.add(l0, v128.load(s));
    l1 = f32x4.add(l1, v128.load(s, 16));
  }
  v128.store(sums, f32x4.add(l0, l2));
  v128.store(sums, f32x4.add(l1, l3), 16);
}

function divide(outputs: usize, rows: i32, factors: usize): void {
  const f0 = v128.load(factors), f1 = v128.load(factors, 16);
  for (; rows > 0; rows--) {
    v128.store(outputs, f32x4.mul(v128.load(outputs), f0));
    v128.store(outputs, f32x4.mul(v128.load(outputs, 16), f1), 16);
    outputs += PANEL << 2;
  }
}

/** Outputs and log-sum-exp go where the tokens of this round stand. */
function scatter(job: Job, g: Group, tokens: usize, count: i32, rows: usize, lse: usize): void {
  const first = <usize>g.round * job.batch * job.time * job.heads + g.row;
  const bytes = <usize>job.valueWidth << 2;
  for (let i = 0; i < count; i++) {
    const row = first + <usize>load<i32>(tokens + (<usize>i << 2)) * job.heads;
    store<f32>(job.lse + (row << 2), load<f32>(lse + (<usize>i << 2)));
    const to = job.output + row * bytes;
    let c: usize = 0;
    for (; c + 16 <= bytes; c += 16) v128.store(to + c, v128.load(rows + c));
    for (; c < bytes; c += 4) store<f32>(to + c, load<f32>(rows + c));
    rows += bytes;
  }
}
