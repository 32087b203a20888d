// The delta rule along time. A panel of 16 value columns of the state stays in L1 while a tile of tokens passes, two at a
// time: one sweep over it decays, writes the pair before, retrieves and reads: o = scale (S'q + (k·q) u) needs no second
// one. Where the correction or the output reads another state, tokens pass one by one.
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { keepPair, packNothing, packPairs, PAIR } from "./delta-pack.as";
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
  work.spare = top;
  top += 128;
  work.values = top;
  top += TILE << 6;
  work.outputs = top;
  top += (<usize>padded(columns, 16)) * TILE << 2;
  work.beta = top;
  top += TILE << 2;
  work.overlap = top;
  top += TILE << 2;
  work.pairs = top;
  top += (<usize>TILE / 2 + 1) * PAIR;
  work.nothing = top;
  top += (<usize>stride) << 3;
  work.rows = work.erase = top;
  top += rows;
  work.query = top;
  top += rows;
  work.writes = work.write = top;
  top += rows;
  work.gate = top;
  top += rows;
  work.carried = (top + 63) & ~63;
  work.u = work.carried;
  work.before = work.u + ((<usize>padded(columns, 16)) << 4);
  work.state = (work.before + PAIR + 3 * ((<usize>stride) << 2) + 63) & ~63;
  const state = (<usize>keyWidth) * (<usize>padded(columns, 16)) << 2;
  work.carriedBytes = work.state + state - work.carried;
  memory.fill(work.nothing, 0, (<usize>stride) << 2);
  for (let c = stride; c < 2 * stride; c++) store<f32>(at(work.nothing, c), -0.0);
  return work;
}

/** Turns to unit `unit`, the `i`-th of those side by side, and to what it carries. */
function select(job: Job, work: Work, unit: i32, i: i32): void {
  const blocks = (job.valueWidth + job.columns - 1) / job.columns;
  work.pair = unit / blocks;
  work.head = work.pair % job.valueHeads;
  work.first = unit % blocks * job.columns;
  work.end = min(work.first + job.columns, job.valueWidth);
  const forward = work.carried + (<usize>i) * work.carriedBytes - work.u;
  work.u += forward;
  work.before += forward;
  work.state += forward;
}

/** As if the pair before had written nothing. */
function forget(work: Work): void {
  memory.fill(work.u, 0, (<usize>padded(work.end - work.first, 16)) << 4);
  packNothing(work, work.before);
}

/** The state of a unit with all that was written, before it is stored. */
function settle(job: Job, work: Work): void {
  if (ordered(job)) return;
  memory.copy(work.pairs, work.before, PAIR);
  for (let column: i32 = 0; column < work.end - work.first; column += 16) {
    const panel = work.state + ((<usize>job.keyWidth) * (<usize>column) << 2);
    const u = work.u + ((<usize>column) << 4);
    if (job.decay == KEY) endKeys(work, panel, job.keyWidth, u);
    else endScalars(work, panel, job.keyWidth, u);
  }
  forget(work);
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
function packTile(job: Job, work: Work, row: i32): void {
  const head = work.head;
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
function passPanel(job: Job, work: Work, row: i32, column: i32, width: i32): void {
  const keyWidth = job.keyWidth;
  const past = <usize>(column - work.first);
  const state = work.state + ((<usize>keyWidth) * past << 2);
  const u = work.u + (past << 4);
  const o = work.outputs + (past << 2);
  const oRow = (<usize>padded(job.columns, 16)) << 2;
  let v = rowAt(job.v, row, job.vRow, work.head * job.valueWidth + column);
  let vRow = (<usize>job.vRow) << 2;
  if (width < 16) {
    packRows(work.values, 16, v, job.vRow, work.tokens, width);
    v = work.values;
    vRow = 64;
  }
  if (ordered(job)) sweepOrdered(work, state, keyWidth, v, vRow, o, oRow);
  else if (job.decay == KEY) sweepKeys(work, state, keyWidth, width, u, v, vRow, o, oRow);
  else sweepScalars(work, state, keyWidth, width, u, v, vRow, o, oRow);
}

/** The state of a unit to or from row-major memory: `direction` 0 reads it (null is zeros), 1 writes it. */
function moveState(job: Job, work: Work, matrix: usize, direction: i32): void {
  for (let column = work.first; column < work.end; column += 16) {
    const panel = work.state + ((<usize>job.keyWidth) * (<usize>(column - work.first)) << 2);
    const width = min(16, work.end - column);
    if (direction == 1) storePanel(at(matrix, column), job.valueWidth, panel, job.keyWidth, width);
    else loadPanel(panel, matrix == 0 ? 0 : at(matrix, column), job.keyWidth, job.valueWidth, width);
  }
}

/** A tile of one unit through its panels. */
function passTile(job: Job, work: Work, row: i32, past: i32, step: i32): void {
  const isOrdered = ordered(job);
  if (isOrdered) packTile(job, work, row);
  else {
    memory.copy(work.pairs, work.before, PAIR);
    packPairs(job, work, row, work.head, past, step);
  }
  let width: i32 = 0;
  for (let column = work.first; column < work.end; column += width) {
    width = min(TIER == 2 && work.end - column >= 32 && !isOrdered ? 32 : 16, work.end - column);
    passPanel(job, work, row, column, width);
  }
  // Another core writes other heads of the same rows: line by line it would be waited for at each, like this at once.
  const o = rowAt(work.o, row, work.oRow, work.head * job.valueWidth + work.first);
  unpackRows(o, work.oRow, work.outputs, padded(job.columns, 16), work.tokens, work.end - work.first);
  if (!isOrdered) keepPair(work, work.before, job.decay == KEY);
}

/** The units of a group over the tokens of their sequence, side by side tile by tile. */
function passSequence(job: Job, work: Work, first: i32, together: i32, from: i32, to: i32, kept: usize, slots: i32): void {
  // Rows of decays per channel are twice as wide: a tile stays as many bytes.
  const tile = job.decay == KEY && !ordered(job) ? TILE / 2 : TILE;
  // Segments are whole chunks, and an even number of tokens: tiles end at the same tokens wherever segments do.
  const step = job.chunk & 1 ? 2 * job.chunk : job.chunk;
  const grid = step <= TILE ? TILE / step * step : step;
  const size = job.keyWidth * job.valueWidth;
  for (let row = from; row < to; row += work.tokens) {
    const past = row - from;
    work.tokens = min(min(tile, to - row), grid - past % grid);
    if (kept) work.tokens = min(work.tokens, job.segment - (past % job.segment));
    for (let i: i32 = 0; i < together; i++) {
      select(job, work, first + i, i);
      if (kept && past > 0 && past % job.segment == 0) {
        const slot = (slots + past / job.segment - 1) * job.valueHeads + work.head;
        settle(job, work);
        moveState(job, work, rowAt(kept, slot, size, 0), 1);
      }
      passTile(job, work, row, past, step);
    }
  }
}

// args: the shared words (Job) with o, final state and kept states behind its operands, then oRow, together, scale.
// One unit is `together` neighbours among the (value head, block of `columns` value columns) of a sequence, side by side:
// their rows share pages and lines that are fetched ahead.
export function recurrence_deltaRecurrent_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = readJob(scratch, args, OPERANDS);
  const final = job.flags & FINAL ? pointerAt(args, 9) : 0;
  const kept = job.flags & KEPT ? pointerAt(args, 10) : 0;
  const together = intAt(args, ownWord(OPERANDS) + 1);
  const blocks = (job.valueWidth + job.columns - 1) / job.columns;
  const size = job.keyWidth * job.valueWidth;
  const work = layOut(scratch, job.keyWidth, job.columns);
  work.flags = job.flags;
  work.o = pointerAt(args, 8);
  work.oRow = intAt(args, ownWord(OPERANDS));
  work.scale = floatAt(args, ownWord(OPERANDS) + 2);
  if (oneKey(job)) work.write = work.erase;
  for (let group = begin; group < end; group++) {
    const first = group * together;
    const sequence = first / (job.valueHeads * blocks);
    const from = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence);
    const to = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence + 1);
    for (let i: i32 = 0; i < together; i++) {
      select(job, work, first + i, i);
      moveState(job, work, job.flags & INITIAL ? rowAt(job.initial, work.pair, size, 0) : 0, 0);
      forget(work);
    }
    passSequence(job, work, first, together, from, to, kept, keptSlot(job.flags, job.time, job.segment, sequence, from));
    for (let i: i32 = 0; i < together && final; i++) {
      select(job, work, first + i, i);
      settle(job, work);
      moveState(job, work, rowAt(final, work.pair, size, 0), 1);
    }
  }
}
