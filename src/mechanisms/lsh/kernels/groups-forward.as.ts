// Attention inside the groups of the sorted sequence, read from and written to where tokens stand.
import { finiteRows } from "../../../device/wasm/kernels/finite.as";
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { log4 } from "../../../device/wasm/kernels/log.as";
import { storeExp8 } from "../../../device/wasm/kernels/math.as";
import { floats, gatherRows, Group, Job, openGroup, openScratch, scoreColumns } from "./group.as";

/** Queries that are scored together: the fewer, the fewer hidden pairs; the columns of the tier's widest tile. */
const PANEL: i32 = TIER == 2 ? 16 : 8;

// args: as Job. Writes output [R,B,H,T,V] and lse [R,B,H,T], −Infinity where a round has nothing new for a query; of a single
// round [B,T,H,V] and [B,T,H]. One unit is one group of one round of one head. Scratch: as openScratch for 16 columns, rows
// of queries or outputs, outputs, 2 rows of numbers, scores.
export function lsh_groups_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const g = openScratch(job, scratch, PANEL);
  const rows = g.maxima + floats(PANEL);
  const outputs = rows + floats(PANEL * max(job.keyWidth, job.valueWidth));
  const numbers = outputs + floats(PANEL * job.valueWidth);
  const s = numbers + floats(2 * PANEL);
  const valueBytes = <usize>job.valueWidth << 2;
  for (let unit = begin; unit < end; unit++) {
    openGroup(job, g, unit);
    const mayMix = finiteRows(g.valueRows, valueBytes, g.keys, job.valueWidth);
    for (let column = 0; column < g.count; column += PANEL) {
      const count = min(PANEL, g.count - column);
      const tokens = g.tokens + (<usize>(g.before + column) << 2);
      gatherRows(tokens, count, g.q, job.qToken, job.keyWidth, rows);
      scoreColumns(job, g, column, PANEL, rows, s);
      for (let c: usize = 0; c < <usize>PANEL << 2; c += 32) weigh(s + c, g.to - g.from, g.maxima + c, numbers + c);
      const values = g.valueRows + <usize>g.from * valueBytes;
      if (mayMix) gemmBlock(job.valueWidth, PANEL, g.to - g.from, values, 4, valueBytes, s, PANEL << 2, outputs, PANEL << 2, 0);
      else addSeen(job, s, g.to - g.from, values, outputs);
      for (let c: usize = 0; c < <usize>PANEL << 2; c += 32) divide(outputs + c, job.valueWidth, numbers + c);
      transposeBlock(job.valueWidth, count, outputs, PANEL << 2, rows, valueBytes);
      scatter(job, g, tokens, count, rows, numbers + (PANEL << 2));
    }
  }
}

/** Scores of eight queries become weights exp(score − max); rows of the numbers get 1 / sum and the log-sum-exp. */
function weigh(s: usize, rows: i32, maxima: usize, numbers: usize): void {
  exponentials(s, rows, maxima);
  sumRows(s, rows, numbers);
  for (let c: usize = 0; c < 32; c += 16) closeQueries(maxima + c, numbers + c);
}

/** Four queries at a time: where tier C pairs this for eight, V8 of Node 24 stops with "unreachable code". */
function closeQueries(maxima: usize, numbers: usize): void {
  const sum = v128.load(numbers);
  v128.store(numbers, v128.andnot(f32x4.div(f32x4.splat(1), sum), f32x4.eq(sum, f32x4.splat(0))));
  v128.store(numbers + (PANEL << 2), f32x4.add(v128.load(maxima), log4(sum)));
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

/** The same sums without pairs of weight 0, which times a NaN or an infinity is none. */
function addSeen(job: Job, s: usize, keys: i32, values: usize, outputs: usize): void {
  const row: usize = PANEL << 2, valueBytes = <usize>job.valueWidth << 2;
  memory.fill(outputs, 0, <usize>job.valueWidth * row);
  for (; keys > 0; keys--) {
    for (let c: usize = 0; c < row; c += 4)
      if (load<f32>(s + c) != 0) gemmBlock(job.valueWidth, 1, 1, values, 4, valueBytes, s + c, row, outputs + c, row, 1);
    s += row;
    values += valueBytes;
  }
}

function divide(outputs: usize, rows: i32, factors: usize): void {
  const f0 = v128.load(factors), f1 = v128.load(factors, 16);
  for (; rows > 0; rows--) {
    v128.store(outputs, f32x4.mul(v128.load(outputs), f0));
    v128.store(outputs, f32x4.mul(v128.load(outputs, 16), f1), 16);
    outputs += PANEL << 2;
  }
}

/** Outputs and log-sum-exp go where their tokens stand. */
function scatter(job: Job, g: Group, tokens: usize, count: i32, rows: usize, lse: usize): void {
  const alone = job.rounds == 1;
  const first = alone ? g.row : <usize>g.round * job.batch * job.heads * job.time + g.headRow;
  const step = alone ? job.heads : 1;
  const bytes = <usize>job.valueWidth << 2;
  for (let i = 0; i < count; i++) {
    const row = first + <usize>load<i32>(tokens + (<usize>i << 2)) * step;
    store<f32>(job.lse + (row << 2), load<f32>(lse + (<usize>i << 2)));
    const to = job.output + row * bytes;
    let c: usize = 0;
    for (; c + 16 <= bytes; c += 16) v128.store(to + c, v128.load(rows + c));
    for (; c < bytes; c += 4) store<f32>(to + c, load<f32>(rows + c));
    rows += bytes;
  }
}
