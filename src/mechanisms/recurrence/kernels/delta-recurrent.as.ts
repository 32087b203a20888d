// The delta rule along time. A panel of 16 value columns of the state stays in L1 while a tile of tokens passes, two at a
// time: one sweep over it decays, writes the pair before, retrieves and reads: o = scale (S'q + (k·q) u) needs no second
// one. Where the correction or the output reads another state, tokens pass one by one.
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { COEFFICIENTS, packPairs, PAIR_BYTES } from "./delta-pack.as";
import { endKeys, endScalars, sweepKeys, sweepScalars } from "./generated/delta-pair-sweep.as";
import { sweepOrdered } from "./generated/delta-sweep.as";
import { Work } from "./delta-work.as";
import { at, dotWide, FINAL, gate1, gate4, Job, INITIAL, JOB_BYTES, KEPT, KEY, keptSlot, loadPanel, NONE, oneKey, ownWord, packColumn, packRows, padded, READ_FIRST, readJob, rowAt, sequenceRow, storePanel, UNDECAYED, unpackRows } from "./delta-job.as";

/** Operands of the forward kernels: the shared ones, o, final state, kept states. */
const OPERANDS: i32 = 11;
/** Tokens that are packed at a time. */
const TILE: i32 = 32;

function layOut(scratch: usize, keyWidth: i32, columns: i32): Work {
  const work = changetype<Work>(scratch + JOB_BYTES);
  const stride = padded(keyWidth, 4);
  const rows = (<usize>stride) * TILE << 2;
  work.stride = stride;
  let top = scratch + JOB_BYTES + 128;
  work.u = top;
  top += (<usize>padded(columns, 16)) << 4;
  work.pair = top;
  top += PAIR_BYTES;
  work.spare = top;
  top += 128;
  work.values = top;
  top += TILE << 6;
  work.outputs = top;
  top += TILE << 6;
  work.beta = top;
  top += TILE << 2;
  work.overlap = top;
  top += TILE << 2;
  work.coefficients = top;
  top += (<usize>TILE / 2 + 1) * COEFFICIENTS;
  work.nothing = top;
  top += (<usize>stride) << 2;
  work.rows = work.erase = top;
  top += rows;
  work.query = top;
  top += rows + ((<usize>stride) << 4);
  work.writes = work.write = top;
  top += rows;
  work.gate = top;
  top += rows + ((<usize>stride) << 4);
  work.state = (top + 63) & ~63;
  memory.fill(work.nothing, 0, (<usize>stride) << 2);
  return work;
}

/** Slot 0 as if the pair before had written nothing: zeros, gates that change nothing. */
function forget(work: Work, columns: i32): void {
  memory.fill(work.u, 0, (<usize>padded(columns, 16)) << 4);
  memory.fill(work.coefficients, 0, COEFFICIENTS);
  memory.fill(work.writes, 0, (<usize>work.stride) << 4);
  for (let c = 0; c < work.stride; c++) store<f32>(work.writes + ((<usize>c) << 4), -0.0, 8);
}

/** The last pair of a tile becomes the one before the next: what it wrote reaches the state with that one's reads. */
function keepLast(work: Work): void {
  const pairs = <usize>((work.tokens + 1) >> 1);
  const bytes = (<usize>work.stride) << 4;
  memory.copy(work.coefficients, work.coefficients + pairs * COEFFICIENTS, COEFFICIENTS);
  memory.copy(work.writes, work.writes + pairs * bytes, bytes);
}

/** The state of a unit with all that was written, before it is stored. */
function settle(job: Job, work: Work, first: i32, last: i32): void {
  if (ordered(job)) return;
  for (let column: i32 = 0; column < last - first; column += 16) {
    const panel = work.state + ((<usize>job.keyWidth) * (<usize>column) << 2);
    const u = work.u + ((<usize>column) << 4);
    if (job.decay == KEY) endKeys(work, panel, job.keyWidth, u);
    else endScalars(work, panel, job.keyWidth, u);
  }
  forget(work, last - first);
}

/** Gates of n token rows of decays. */
function packGates(to: usize, stride: i32, from: usize, fromRow: i32, n: i32, width: i32): void {
  packRows(to, stride, from, fromRow, n, width);
  const end = at(to, stride * n);
  for (; to < end; to += 16) v128.store(to, gate4(v128.load(to)));
}

/** True where the correction or the output reads another state than the delta rule's. */
// @ts-ignore: decorator
@inline function ordered(job: Job): bool {
  return (job.flags & (UNDECAYED | READ_FIRST)) != 0;
}

/** Packs the next tile of a head for the orders of reads that go token by token. */
function packTile(job: Job, work: Work, row: i32, head: i32): void {
  const keyWidth = job.keyWidth;
  const stride = work.stride;
  const n = work.tokens;
  const first = (head / (job.valueHeads / job.heads)) * keyWidth;
  packRows(work.erase, stride, rowAt(job.erase, row, job.eraseRow, first), job.eraseRow, n, keyWidth);
  if (!oneKey(job))
    packRows(work.write, stride, rowAt(job.write, row, job.writeRow, first), job.writeRow, n, keyWidth);
  packRows(work.query, stride, rowAt(job.q, row, job.qRow, first), job.qRow, n, keyWidth);
  packColumn(work.beta, rowAt(job.beta, row, job.betaRow, head), job.betaRow, n);
  const readFirst = (job.flags & READ_FIRST) != 0;
  for (let t = 0; t < n; t++) {
    const key = at(work.write, t * stride);
    store<f32>(at(work.overlap, t), readFirst ? <f32>0 : dotWide(key, at(work.query, t * stride), stride));
  }
  if (job.decay == KEY) {
    packGates(work.gate, stride, rowAt(job.g, row, job.gRow, head * keyWidth), job.gRow, n, keyWidth);
    return;
  }
  for (let t = 0; t < n; t++) {
    const gate: f32 = job.decay == NONE ? -0.0 : gate1(load<f32>(rowAt(job.g, row + t, job.gRow, head)));
    for (let c = 0; c < stride; c++) store<f32>(at(work.gate, t * stride + c), gate);
  }
}

/** One tile through one panel whose first column is `column`, or through two; `width` columns. */
function passPanel(job: Job, work: Work, state: usize, u: usize, row: i32, head: i32, column: i32, width: i32): void {
  const keyWidth = job.keyWidth;
  const valueWidth = job.valueWidth;
  let v = rowAt(job.v, row, job.vRow, head * valueWidth + column);
  let o = rowAt(work.o, row, work.oRow, head * valueWidth + column);
  let vRow = (<usize>job.vRow) << 2;
  let oRow = (<usize>work.oRow) << 2;
  if (width < 16) {
    packRows(work.values, 16, v, job.vRow, work.tokens, width);
    v = work.values;
    o = work.outputs;
    vRow = oRow = 64;
  }
  if (ordered(job)) sweepOrdered(work, state, keyWidth, v, vRow, o, oRow);
  else if (job.decay == KEY) sweepKeys(work, state, keyWidth, width, u, v, vRow, o, oRow);
  else sweepScalars(work, state, keyWidth, width, u, v, vRow, o, oRow);
  if (width < 16)
    unpackRows(rowAt(work.o, row, work.oRow, head * valueWidth + column), work.oRow, o, 16, work.tokens, width);
}

/** The state of a unit to or from row-major memory: `direction` 0 reads it (null is zeros), 1 writes it. */
function moveState(job: Job, work: Work, matrix: usize, first: i32, last: i32, direction: i32): void {
  for (let column = first; column < last; column += 16) {
    const panel = work.state + ((<usize>job.keyWidth) * (<usize>(column - first)) << 2);
    const width = min(16, last - column);
    if (direction == 1) storePanel(at(matrix, column), job.valueWidth, panel, job.keyWidth, width);
    else loadPanel(panel, matrix == 0 ? 0 : at(matrix, column), job.keyWidth, job.valueWidth, width);
  }
}

// args: the shared words (Job) with o, final state and kept states behind its operands, then oRow, scale.
// One unit is (sequence, value head, block of `columns` value columns).
export function recurrence_deltaRecurrent_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = readJob(scratch, args, OPERANDS);
  const final = pointerAt(args, 9);
  const kept = pointerAt(args, 10);
  const valueWidth = job.valueWidth;
  const blocks = (valueWidth + job.columns - 1) / job.columns;
  const size = job.keyWidth * valueWidth;
  const work = layOut(scratch, job.keyWidth, job.columns);
  work.flags = job.flags;
  work.o = pointerAt(args, 8);
  work.oRow = intAt(args, ownWord(OPERANDS));
  work.scale = floatAt(args, ownWord(OPERANDS) + 1);
  if (oneKey(job)) {
    work.write = work.erase;
    if (job.decay != KEY) work.writes = work.rows;
  }
  // Rows of decays per channel are twice as wide: a tile stays as many bytes.
  const tile = job.decay == KEY && !ordered(job) ? TILE / 2 : TILE;
  // Segments are whole chunks, and an even number of tokens: tiles end at the same tokens wherever segments do.
  const step = job.chunk & 1 ? 2 * job.chunk : job.chunk;
  const grid = step <= TILE ? TILE / step * step : step;
  for (let unit = begin; unit < end; unit++) {
    const pair = unit / blocks;
    const head = pair % job.valueHeads;
    const sequence = pair / job.valueHeads;
    const first = (unit % blocks) * job.columns;
    const last = min(first + job.columns, valueWidth);
    const from = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence);
    const to = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence + 1);
    const slots = keptSlot(job.flags, job.time, job.segment, sequence, from);
    moveState(job, work, job.flags & INITIAL ? rowAt(job.initial, pair, size, 0) : 0, first, last, 0);
    forget(work, last - first);
    for (let row = from; row < to; row += work.tokens) {
      const past = row - from;
      work.tokens = min(min(tile, to - row), grid - past % grid);
      if (job.flags & KEPT) {
        if (past > 0 && past % job.segment == 0) {
          const slot = (slots + past / job.segment - 1) * job.valueHeads + head;
          settle(job, work, first, last);
          moveState(job, work, rowAt(kept, slot, size, 0), first, last, 1);
        }
        work.tokens = min(work.tokens, job.segment - (past % job.segment));
      }
      if (ordered(job)) packTile(job, work, row, head);
      else packPairs(job, work, row, head, past, step);
      let width: i32 = 0;
      for (let column = first; column < last; column += width) {
        const panel = work.state + ((<usize>job.keyWidth) * (<usize>(column - first)) << 2);
        width = min(TIER == 2 && last - column >= 32 && !ordered(job) ? 32 : 16, last - column);
        passPanel(job, work, panel, work.u + ((<usize>(column - first)) << 4), row, head, column, width);
      }
      if (!ordered(job)) keepLast(work);
    }
    if (!(job.flags & FINAL)) continue;
    settle(job, work, first, last);
    moveState(job, work, rowAt(final, pair, size, 0), first, last, 1);
  }
}
