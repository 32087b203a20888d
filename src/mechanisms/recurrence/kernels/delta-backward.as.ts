// Backward pass of the delta rule: segments from the last to the first, each run forward again from the state kept where
// it begins, then its chunks backward.
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { floatAt, fma } from "../../../device/wasm/kernels/simd.as";
import { Chunk, CHUNK_BYTES, layOutChunk, leaveRows, prepareChunk, shareKeys } from "./delta-chunk.as";
import { chunkGradient, decayState, Gradient, GRADIENT_BYTES, layOutGradient } from "./delta-gradient.as";
import { addRows, at, FINAL, GATE_GRADIENT, INITIAL, INITIAL_GRADIENT, Job, JOB_BYTES, KEY, keptSlot, ONE_KEY, oneKey, ownWord, packRows, readJob, rowAt, sequenceRow, unpackRows } from "./delta-job.as";

/** Operands: the shared ones, then those of Ends. */
const OPERANDS: i32 = 18;

/** Operands and strides of this pass alone, and where a segment lies in scratch memory. */
// @ts-ignore: decorator
@unmanaged class Ends {
  kept: usize;
  dO: usize;
  dFinal: usize;
  dq: usize;
  dErase: usize;
  dWrite: usize;
  dv: usize;
  dBeta: usize;
  dg: usize;
  dInitial: usize;
  dORow: i32;
  dqRow: i32;
  dEraseRow: i32;
  dWriteRow: i32;
  dvRow: i32;
  dBetaRow: i32;
  dgRow: i32;
  /** The state that enters each chunk of the segment. */
  states: usize;
  stateBytes: usize;
  /** v − retrieved of each token of the segment. */
  w: usize;
  read: usize;
}

const ENDS_BYTES: i32 = 128;

/** Copies a row-major state to packed rows; null is zeros. */
function loadState(to: usize, wide: i32, from: usize, rows: i32, stride: i32, width: i32): void {
  if (from == 0) memory.fill(to, 0, (<usize>(stride * wide)) << 2);
  else {
    packRows(to, wide, from, width, rows, width);
    memory.fill(at(to, rows * wide), 0, (<usize>((stride - rows) * wide)) << 2);
  }
}

/** Row after row: w_i = v_i − retrieved_i − sum over j < i of M_ij u_j, u_i = beta_i w_i; v becomes w. */
function substitute(chunk: Chunk, read: usize, w: usize, u: usize, wide: i32): void {
  const wideBytes = (<usize>wide) << 2;
  for (let i = 0; i < chunk.tokens; i++) {
    const minus = f32x4.neg(v128.load32_splat(at(chunk.into, i)));
    const own = (<usize>i) * wideBytes;
    const r = read + own;
    const to = w + own;
    let a0 = fma(minus, v128.load(r), v128.load(to));
    let a1 = fma(minus, v128.load(r, 16), v128.load(to, 16));
    let a2 = fma(minus, v128.load(r, 32), v128.load(to, 32));
    let a3 = fma(minus, v128.load(r, 48), v128.load(to, 48));
    let m = at(chunk.m, i * chunk.span);
    for (let from = u; from < u + own; from += wideBytes, m += 4) {
      const x = v128.load32_splat(m);
      a0 = fma(x, v128.load(from), a0);
      a1 = fma(x, v128.load(from, 16), a1);
      a2 = fma(x, v128.load(from, 32), a2);
      a3 = fma(x, v128.load(from, 48), a3);
    }
    v128.store(to, a0);
    v128.store(to, a1, 16);
    v128.store(to, a2, 32);
    v128.store(to, a3, 48);
    const beta = v128.load32_splat(at(chunk.beta, i));
    v128.store(u + own, f32x4.mul(beta, a0));
    v128.store(u + own, f32x4.mul(beta, a1), 16);
    v128.store(u + own, f32x4.mul(beta, a2), 32);
    v128.store(u + own, f32x4.mul(beta, a3), 48);
  }
}

/** Runs one chunk forward: its w, and the state behind it where `next` is not null. */
function recompute(job: Job, chunk: Chunk, gradient: Gradient, ends: Ends, row: i32, head: i32, state: usize, w: usize, next: usize): void {
  const n = chunk.tokens;
  const wide = gradient.wide;
  const wideBytes = (<usize>wide) << 2;
  const keyBytes = (<usize>chunk.stride) << 2;
  const columns = gradient.columns;
  packRows(w, wide, rowAt(job.v, row, job.vRow, head * job.valueWidth), job.vRow, n, job.valueWidth);
  gemmBlock(n, columns, chunk.stride, chunk.x, keyBytes, 4, state, wideBytes, ends.read, wideBytes, 0);
  for (let j = 0; j < columns; j += 16)
    substitute(chunk, at(ends.read, j), at(w, j), at(gradient.u, j), wide);
  if (next == 0) return;
  leaveRows(job, chunk, gradient.u, wide, columns);
  decayState(job, chunk, next, wide, columns, state);
  const rest = job.keyWidth * wide;
  memory.fill(at(next, rest), 0, (<usize>(chunk.stride * wide - rest)) << 2);
  gemmBlock(job.keyWidth, columns, n, chunk.w, 4, keyBytes, gradient.u, wideBytes, next, wideBytes, 1);
}

/** Writes packed gradients to their rows, or adds them where another value head of the group was there before. */
// @ts-ignore: decorator
@inline function putRows(to: usize, toRow: i32, from: usize, stride: i32, n: i32, width: i32, add: bool): void {
  if (add) addRows(to, toRow, from, stride, n, width);
  else unpackRows(to, toRow, from, stride, n, width);
}

/** Hands the gradients of a chunk to the operands. */
function putGradients(job: Job, chunk: Chunk, gradient: Gradient, ends: Ends, row: i32, head: i32): void {
  const n = chunk.tokens;
  const keyWidth = job.keyWidth;
  const keyRow = gradient.keyRow;
  const group = job.valueHeads / job.heads;
  const first = (head / group) * keyWidth;
  const add = head % group != 0;
  const dErase = gradient.dX;
  putRows(rowAt(ends.dq, row, ends.dqRow, first), ends.dqRow, at(dErase, n * keyRow), keyRow, n, keyWidth, add);
  if (job.flags & ONE_KEY) addRows(gradient.dW, keyRow, dErase, keyRow, n, keyWidth);
  const dWrite = rowAt(ends.dWrite, row, ends.dWriteRow, first);
  putRows(dWrite, ends.dWriteRow, gradient.dW, keyRow, n, keyWidth, add);
  if ((job.flags & ONE_KEY) == 0)
    putRows(rowAt(ends.dErase, row, ends.dEraseRow, first), ends.dEraseRow, dErase, keyRow, n, keyWidth, add);
  const width = job.valueWidth;
  unpackRows(rowAt(ends.dv, row, ends.dvRow, head * width), ends.dvRow, gradient.e, gradient.wide, n, width);
  for (let i = 0; i < n; i++)
    store<f32>(rowAt(ends.dBeta, row + i, ends.dBetaRow, head), load<f32>(at(gradient.dBeta, i)));
  if ((job.flags & GATE_GRADIENT) == 0) return;
  const perKey = job.decay == KEY;
  const gates = perKey ? keyWidth : 1;
  const stride = perKey ? chunk.stride : 1;
  unpackRows(rowAt(ends.dg, row, ends.dgRow, head * gates), ends.dgRow, gradient.dG, stride, n, gates);
}

/** One segment of `length` tokens from `row` on, whose entering state is the first of `states`. */
function passSegment(job: Job, chunk: Chunk, gradient: Gradient, ends: Ends, row: i32, length: i32, head: i32): void {
  const chunks = (length + job.chunk - 1) / job.chunk;
  const rowBytes = (<usize>gradient.wide) << 2;
  for (let c = 0; c < chunks; c++) {
    const first = c * job.chunk;
    const state = ends.states + (<usize>c) * ends.stateBytes;
    prepareChunk(job, chunk, row + first, min(job.chunk, length - first), head, false);
    const w = ends.w + (<usize>first) * rowBytes;
    recompute(job, chunk, gradient, ends, row + first, head, state, w, c + 1 < chunks ? state + ends.stateBytes : 0);
  }
  for (let c = chunks - 1; c >= 0; c--) {
    const first = c * job.chunk;
    const state = ends.states + (<usize>c) * ends.stateBytes;
    const w = ends.w + (<usize>first) * rowBytes;
    const dO = rowAt(ends.dO, row + first, ends.dORow, head * job.valueWidth);
    prepareChunk(job, chunk, row + first, min(job.chunk, length - first), head, true);
    chunkGradient(job, chunk, gradient, state, w, dO, ends.dORow, (job.flags & GATE_GRADIENT) != 0);
    putGradients(job, chunk, gradient, ends, row + first, head);
  }
}

/** One value head of one sequence. */
function passHead(job: Job, chunk: Chunk, gradient: Gradient, ends: Ends, sequence: i32, head: i32): void {
  const keyWidth = job.keyWidth;
  const valueWidth = job.valueWidth;
  const size = keyWidth * valueWidth;
  const pair = sequence * job.valueHeads + head;
  const from = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence);
  const to = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence + 1);
  const slots = keptSlot(job.flags, job.time, job.segment, sequence, from);
  const wide = gradient.wide;
  const dFinal = job.flags & FINAL ? rowAt(ends.dFinal, pair, size, 0) : 0;
  loadState(gradient.dState, wide, dFinal, keyWidth, chunk.stride, valueWidth);
  const segments = (to - from + job.segment - 1) / job.segment;
  for (let s = segments - 1; s >= 0; s--) {
    let entering: usize = job.flags & INITIAL ? rowAt(job.initial, pair, size, 0) : 0;
    if (s > 0) entering = rowAt(ends.kept, (slots + s - 1) * job.valueHeads + head, size, 0);
    loadState(ends.states, wide, entering, keyWidth, chunk.stride, valueWidth);
    const row = from + s * job.segment;
    passSegment(job, chunk, gradient, ends, row, min(job.segment, to - row), head);
  }
  if (job.flags & INITIAL_GRADIENT)
    unpackRows(rowAt(ends.dInitial, pair, size, 0), valueWidth, gradient.dState, wide, keyWidth, valueWidth);
}

function readEnds(ends: Ends, args: usize): void {
  memory.copy(changetype<usize>(ends), args + 32, 40);
  memory.copy(changetype<usize>(ends) + 40, args + ((<usize>ownWord(OPERANDS)) << 2), 28);
}

// args: the shared words (Job) with those of Ends behind its operands and behind its ints, then scale.
// One unit is (sequence, key head): its value heads follow one another, so dq and dk are summed in one order.
export function recurrence_deltaChunkwise_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = readJob(scratch, args, OPERANDS);
  const chunk = changetype<Chunk>(scratch + JOB_BYTES);
  const gradient = changetype<Gradient>(scratch + JOB_BYTES + CHUNK_BYTES);
  const ends = changetype<Ends>(scratch + JOB_BYTES + CHUNK_BYTES + GRADIENT_BYTES);
  readEnds(ends, args);
  gradient.scale = floatAt(args, ownWord(OPERANDS) + 7);
  let top = scratch + JOB_BYTES + CHUNK_BYTES + GRADIENT_BYTES + ENDS_BYTES;
  top = layOutChunk(chunk, top, job.keyWidth, job.chunk, job.decay == KEY);
  if (oneKey(job)) shareKeys(chunk, job.decay == KEY);
  chunk.between = top;
  top += (<usize>(chunk.span * chunk.span)) << 2;
  top = layOutGradient(gradient, top, job.keyWidth, job.valueWidth, job.chunk);
  ends.read = top;
  top += (<usize>(chunk.span * gradient.wide)) << 2;
  ends.w = top;
  top += (<usize>(job.segment * gradient.wide)) << 2;
  ends.states = top;
  ends.stateBytes = (<usize>(chunk.stride * gradient.wide)) << 2;
  const group = job.valueHeads / job.heads;
  for (let unit = begin; unit < end; unit++)
    for (let member = 0; member < group; member++)
      passHead(job, chunk, gradient, ends, unit / job.heads, (unit % job.heads) * group + member);
}
