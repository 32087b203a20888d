// The delta rule chunk by chunk: retrieval and read-out of all tokens from the entering state are one block product, the
// written values follow by forward substitution, and the state takes them all at once. A panel of 16 value columns at a
// time keeps its part of the state and the chunk's rows in L1.
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { Chunk, CHUNK_BYTES, layOutChunk, leaveRows, prepareChunk, shareKeys } from "./delta-chunk.as";
import { at, FINAL, INITIAL, Job, JOB_BYTES, KEPT, KEY, keptSlot, loadPanel, NONE, oneKey, ownWord, packRows, padded, readJob, rowAt, sequenceRow, slowMask, storePanel, unpackRows } from "./delta-job.as";

/** Operands: the shared ones, o, final state, kept states. */
const OPERANDS: i32 = 11;

/** Where one unit keeps its state and what a panel needs beside the chunk. */
// @ts-ignore: decorator
@unmanaged class Panels {
  o: usize;
  oRow: i32;
  scale: f32;
  /** Panels [K padded to 4][16], one after another. */
  state: usize;
  panelBytes: usize;
  /** Retrieved rows, then read rows, of 16 floats. */
  read: usize;
  /** Written values, rows of 16 floats. */
  u: usize;
  values: usize;
  outputs: usize;
}

/** The gate of the chunk on a panel of the state. */
function decayPanel(job: Job, chunk: Chunk, panel: usize): void {
  if (job.decay == NONE) return;
  const perKey = job.decay == KEY;
  for (let c = 0; c < job.keyWidth; c++) {
    const a = v128.load32_splat(perKey ? at(chunk.total, c) : chunk.total);
    const slow = slowMask(a);
    const s = panel + ((<usize>c) << 6);
    const s0 = v128.load(s), s1 = v128.load(s, 16), s2 = v128.load(s, 32), s3 = v128.load(s, 48);
    v128.store(s, fma(a, s0, v128.and(s0, slow)));
    v128.store(s, fma(a, s1, v128.and(s1, slow)), 16);
    v128.store(s, fma(a, s2, v128.and(s2, slow)), 32);
    v128.store(s, fma(a, s3, v128.and(s3, slow)), 48);
  }
}

/**
 * Row after row: w_i = v_i − retrieved_i − sum over j < i of M_ij u_j, u_i = beta_i w_i, and beside it
 * o_i = scale (read_i + sum over j <= i of N_ij u_j). A row reads no later one.
 */
function substitute(chunk: Chunk, read: usize, u: usize, v: usize, vRow: usize, o: usize, oRow: usize, scale: f32): void {
  const spanBytes = (<usize>chunk.span) << 2;
  const tokens = chunk.tokens;
  const readOut = read + ((<usize>tokens) << 6);
  for (let i = 0; i < tokens; i++) {
    const into = v128.load32_splat(at(chunk.into, i));
    const minus = f32x4.neg(into);
    const r = read + ((<usize>i) << 6);
    const p = readOut + ((<usize>i) << 6);
    let a0 = fma(minus, v128.load(r), v128.load(v));
    let a1 = fma(minus, v128.load(r, 16), v128.load(v, 16));
    let a2 = fma(minus, v128.load(r, 32), v128.load(v, 32));
    let a3 = fma(minus, v128.load(r, 48), v128.load(v, 48));
    let p0 = f32x4.mul(into, v128.load(p));
    let p1 = f32x4.mul(into, v128.load(p, 16));
    let p2 = f32x4.mul(into, v128.load(p, 32));
    let p3 = f32x4.mul(into, v128.load(p, 48));
    let m = chunk.m + (<usize>i) * spanBytes;
    let n = chunk.n + (<usize>i) * spanBytes;
    const own = u + ((<usize>i) << 6);
    for (let from = u; from < own; from += 64, m += 4, n += 4) {
      const x = v128.load32_splat(m), y = v128.load32_splat(n);
      const u0 = v128.load(from), u1 = v128.load(from, 16), u2 = v128.load(from, 32), u3 = v128.load(from, 48);
      a0 = fma(x, u0, a0);
      a1 = fma(x, u1, a1);
      a2 = fma(x, u2, a2);
      a3 = fma(x, u3, a3);
      p0 = fma(y, u0, p0);
      p1 = fma(y, u1, p1);
      p2 = fma(y, u2, p2);
      p3 = fma(y, u3, p3);
    }
    const beta = v128.load32_splat(at(chunk.beta, i));
    a0 = f32x4.mul(beta, a0);
    a1 = f32x4.mul(beta, a1);
    a2 = f32x4.mul(beta, a2);
    a3 = f32x4.mul(beta, a3);
    v128.store(own, a0);
    v128.store(own, a1, 16);
    v128.store(own, a2, 32);
    v128.store(own, a3, 48);
    const y = v128.load32_splat(n);
    const s = f32x4.splat(scale);
    v128.store(o, f32x4.mul(s, fma(y, a0, p0)));
    v128.store(o, f32x4.mul(s, fma(y, a1, p1)), 16);
    v128.store(o, f32x4.mul(s, fma(y, a2, p2)), 32);
    v128.store(o, f32x4.mul(s, fma(y, a3, p3)), 48);
    v += vRow;
    o += oRow;
  }
}

/** One chunk through the panel whose first column is `column`. */
function passPanel(job: Job, chunk: Chunk, panels: Panels, panel: usize, row: i32, head: i32, column: i32): void {
  const tokens = chunk.tokens;
  const stride = chunk.stride;
  const rowBytes = (<usize>stride) << 2;
  gemmBlock(tokens * 2, 16, stride, chunk.x, rowBytes, 4, panel, 64, panels.read, 64, 0);
  const width = min(16, job.valueWidth - column);
  const first = head * job.valueWidth + column;
  const v = rowAt(job.v, row, job.vRow, first);
  const o = rowAt(panels.o, row, panels.oRow, first);
  if (width < 16) {
    packRows(panels.values, 16, v, job.vRow, tokens, width);
    substitute(chunk, panels.read, panels.u, panels.values, 64, panels.outputs, 64, panels.scale);
    unpackRows(o, panels.oRow, panels.outputs, 16, tokens, width);
  } else {
    const vBytes = (<usize>job.vRow) << 2;
    substitute(chunk, panels.read, panels.u, v, vBytes, o, (<usize>panels.oRow) << 2, panels.scale);
  }
  leaveRows(job, chunk, panels.u, 16, 16);
  decayPanel(job, chunk, panel);
  gemmBlock(job.keyWidth, 16, tokens, chunk.w, 4, rowBytes, panels.u, 64, panel, 64, 1);
}

function moveState(job: Job, panels: Panels, matrix: usize, first: i32, last: i32, write: bool): void {
  let panel = panels.state;
  for (let column = first; column < last; column += 16, panel += panels.panelBytes) {
    const width = min(16, last - column);
    if (write) {
      storePanel(at(matrix, column), job.valueWidth, panel, job.keyWidth, width);
      continue;
    }
    loadPanel(panel, matrix == 0 ? 0 : at(matrix, column), job.keyWidth, job.valueWidth, width);
    const rest = (<usize>job.keyWidth) << 6;
    memory.fill(panel + rest, 0, panels.panelBytes - rest);
  }
}

function layOutPanels(panels: Panels, job: Job, tokens: i32, top: usize): void {
  const rows = (<usize>tokens) << 6;
  panels.read = top;
  panels.u = top + 2 * rows;
  panels.values = panels.u + rows;
  panels.outputs = panels.values + rows;
  panels.state = panels.outputs + rows;
  panels.panelBytes = (<usize>padded(job.keyWidth, 4)) << 6;
}

/** The (sequence, value head, columns) of one unit from its first token to its last. */
function passUnit(job: Job, chunk: Chunk, panels: Panels, unit: i32, tokens: i32, final: usize, kept: usize): void {
  const blocks = (job.valueWidth + job.columns - 1) / job.columns;
  const size = job.keyWidth * job.valueWidth;
  const pair = unit / blocks;
  const head = pair % job.valueHeads;
  const sequence = pair / job.valueHeads;
  const first = (unit % blocks) * job.columns;
  const last = min(first + job.columns, job.valueWidth);
  const from = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence);
  const to = sequenceRow(job.flags, job.cuSeqlens, job.time, sequence + 1);
  const slots = keptSlot(job.flags, job.time, job.segment, sequence, from);
  moveState(job, panels, job.flags & INITIAL ? rowAt(job.initial, pair, size, 0) : 0, first, last, false);
  for (let row = from; row < to; row += tokens) {
    const past = row - from;
    if (job.flags & KEPT && past > 0 && past % job.segment == 0) {
      const slot = (slots + past / job.segment - 1) * job.valueHeads + head;
      moveState(job, panels, rowAt(kept, slot, size, 0), first, last, true);
    }
    prepareChunk(job, chunk, row, min(tokens, to - row), head, true);
    let panel = panels.state;
    for (let column = first; column < last; column += 16, panel += panels.panelBytes)
      passPanel(job, chunk, panels, panel, row, head, column);
  }
  if (job.flags & FINAL) moveState(job, panels, rowAt(final, pair, size, 0), first, last, true);
}

function run(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = readJob(scratch, args, OPERANDS);
  const chunk = changetype<Chunk>(scratch + JOB_BYTES);
  const panels = changetype<Panels>(scratch + JOB_BYTES + CHUNK_BYTES);
  panels.o = pointerAt(args, 8);
  panels.oRow = intAt(args, ownWord(OPERANDS));
  panels.scale = floatAt(args, ownWord(OPERANDS) + 1);
  const top = scratch + JOB_BYTES + CHUNK_BYTES + 64;
  layOutPanels(panels, job, job.chunk, layOutChunk(chunk, top, job.keyWidth, job.chunk, job.decay == KEY));
  if (oneKey(job)) shareKeys(chunk, job.decay == KEY);
  const final = pointerAt(args, 9);
  const kept = pointerAt(args, 10);
  for (let unit = begin; unit < end; unit++) passUnit(job, chunk, panels, unit, job.chunk, final, kept);
}

// args: the shared words (Job) with o, final state and kept states behind its operands, then oRow, scale.
// One unit is (sequence, value head, block of `columns` value columns).
export function recurrence_deltaChunkwise_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  run(args, begin, end, scratch);
}

// The same with a chunk as long as the longest sequence: every pair of tokens meets once, T × T.
export function recurrence_deltaParallel_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  run(args, begin, end, scratch);
}
