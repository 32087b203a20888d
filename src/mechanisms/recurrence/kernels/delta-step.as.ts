// One token of the delta rule for many rows, each with a state of its own in a slab: nothing moves but what changes.
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { at, dotWide, gate1, gate4, Job, JOB_BYTES, KEY, loadPanel, NONE, oneKey, ownWord, packRows, padded, READ_FIRST, readJob, rowAt, storePanel, UNDECAYED, unpackRows } from "./delta-job.as";

/** Operands: the shared ones, the slots and the slab in place of initial state and cuSeqlens, then o. */
const OPERANDS: i32 = 9;

/** The rows of one token in scratch memory. */
// @ts-ignore: decorator
@unmanaged class Token {
  erase: usize;
  write: usize;
  query: usize;
  /** Gates, one a key channel. */
  gate: usize;
  /** A panel that is not full: state, values, outputs. */
  panel: usize;
  values: usize;
  outputs: usize;
  beta: f32;
  overlap: f32;
  scale: f32;
  flags: i32;
}

function layOut(scratch: usize, keyWidth: i32): Token {
  const token = changetype<Token>(scratch);
  const rowBytes = (<usize>padded(keyWidth, 4)) << 2;
  token.values = scratch + 64;
  token.outputs = token.values + 64;
  token.erase = token.outputs + 64;
  token.write = token.erase + rowBytes;
  token.query = token.write + rowBytes;
  token.gate = token.query + rowBytes;
  token.panel = token.gate + rowBytes;
  return token;
}

function loadToken(job: Job, token: Token, row: i32, head: i32): void {
  const keyWidth = job.keyWidth;
  const stride = padded(keyWidth, 4);
  const first = (head / (job.valueHeads / job.heads)) * keyWidth;
  packRows(token.erase, stride, rowAt(job.erase, row, job.eraseRow, first), job.eraseRow, 1, keyWidth);
  if (!oneKey(job)) packRows(token.write, stride, rowAt(job.write, row, job.writeRow, first), job.writeRow, 1, keyWidth);
  packRows(token.query, stride, rowAt(job.q, row, job.qRow, first), job.qRow, 1, keyWidth);
  token.beta = load<f32>(rowAt(job.beta, row, job.betaRow, head));
  token.overlap = job.flags & READ_FIRST ? 0 : dotWide(token.write, token.query, stride);
  if (job.decay == KEY) {
    packRows(token.gate, stride, rowAt(job.g, row, job.gRow, head * keyWidth), job.gRow, 1, keyWidth);
    for (let c = 0; c < stride; c += 4) v128.store(at(token.gate, c), gate4(v128.load(at(token.gate, c))));
    return;
  }
  const gate: f32 = job.decay == NONE ? -0.0 : gate1(load<f32>(rowAt(job.g, row, job.gRow, head)));
  for (let c = 0; c < stride; c++) store<f32>(at(token.gate, c), gate);
}

/** Four columns: retrieve and read from the state as the order of reads has it, then decay and write it. */
function passColumns(token: Token, keyWidth: i32, state: usize, stateRow: usize, v: usize, o: usize): void {
  const early = i32x4.splat(token.flags & UNDECAYED ? -1 : 0);
  const first = i32x4.splat(token.flags & READ_FIRST ? -1 : 0);
  let r = f32x4.splat(0), p = r;
  let s = state;
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const a = v128.load32_splat(at(token.gate, c));
    const old = v128.load(s);
    const decayed = fma(a, old, v128.and(old, i32x4.shr_s(a, 31)));
    r = fma(v128.load32_splat(at(token.erase, c)), v128.bitselect(old, decayed, early), r);
    p = fma(v128.load32_splat(at(token.query, c)), v128.bitselect(old, decayed, first), p);
  }
  const u = f32x4.mul(f32x4.splat(token.beta), f32x4.sub(v128.load(v), r));
  v128.store(o, f32x4.mul(f32x4.splat(token.scale), fma(f32x4.splat(token.overlap), u, p)));
  writeColumns(token, keyWidth, state, stateRow, u);
}

// @ts-ignore: decorator
@inline function writeColumns(token: Token, keyWidth: i32, s: usize, stateRow: usize, u: v128): void {
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const a = v128.load32_splat(at(token.gate, c));
    const old = v128.load(s);
    const decayed = fma(a, old, v128.and(old, i32x4.shr_s(a, 31)));
    v128.store(s, fma(v128.load32_splat(at(token.write, c)), u, decayed));
  }
}

/** Sixteen columns of the delta family's own order: what passColumns does, four vectors beside each other. */
function passPanel(token: Token, keyWidth: i32, state: usize, stateRow: usize, v: usize, o: usize): void {
  let r0 = f32x4.splat(0), r1 = r0, r2 = r0, r3 = r0;
  let p0 = r0, p1 = r0, p2 = r0, p3 = r0;
  let s = state;
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const a = v128.load32_splat(at(token.gate, c));
    const slow = i32x4.shr_s(a, 31);
    const k = v128.load32_splat(at(token.erase, c));
    const x = v128.load32_splat(at(token.query, c));
    const s0 = v128.load(s), s1 = v128.load(s, 16), s2 = v128.load(s, 32), s3 = v128.load(s, 48);
    const d0 = fma(a, s0, v128.and(s0, slow));
    r0 = fma(k, d0, r0);
    p0 = fma(x, d0, p0);
    const d1 = fma(a, s1, v128.and(s1, slow));
    r1 = fma(k, d1, r1);
    p1 = fma(x, d1, p1);
    const d2 = fma(a, s2, v128.and(s2, slow));
    r2 = fma(k, d2, r2);
    p2 = fma(x, d2, p2);
    const d3 = fma(a, s3, v128.and(s3, slow));
    r3 = fma(k, d3, r3);
    p3 = fma(x, d3, p3);
  }
  const b = f32x4.splat(token.beta);
  const u0 = f32x4.mul(b, f32x4.sub(v128.load(v), r0));
  const u1 = f32x4.mul(b, f32x4.sub(v128.load(v, 16), r1));
  const u2 = f32x4.mul(b, f32x4.sub(v128.load(v, 32), r2));
  const u3 = f32x4.mul(b, f32x4.sub(v128.load(v, 48), r3));
  const m = f32x4.splat(token.scale);
  const overlap = f32x4.splat(token.overlap);
  v128.store(o, f32x4.mul(m, fma(overlap, u0, p0)));
  v128.store(o, f32x4.mul(m, fma(overlap, u1, p1)), 16);
  v128.store(o, f32x4.mul(m, fma(overlap, u2, p2)), 32);
  v128.store(o, f32x4.mul(m, fma(overlap, u3, p3)), 48);
  writePanel(token, keyWidth, state, stateRow, u0, u1, u2, u3);
}

// @ts-ignore: decorator
@inline function writePanel(token: Token, keyWidth: i32, s: usize, stateRow: usize, u0: v128, u1: v128, u2: v128, u3: v128): void {
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const a = v128.load32_splat(at(token.gate, c));
    const slow = i32x4.shr_s(a, 31);
    const w = v128.load32_splat(at(token.write, c));
    const s0 = v128.load(s), s1 = v128.load(s, 16), s2 = v128.load(s, 32), s3 = v128.load(s, 48);
    const d0 = fma(w, u0, fma(a, s0, v128.and(s0, slow)));
    const d1 = fma(w, u1, fma(a, s1, v128.and(s1, slow)));
    const d2 = fma(w, u2, fma(a, s2, v128.and(s2, slow)));
    const d3 = fma(w, u3, fma(a, s3, v128.and(s3, slow)));
    v128.store(s, d0);
    v128.store(s, d1, 16);
    v128.store(s, d2, 32);
    v128.store(s, d3, 48);
  }
}

/** A panel with fewer than 16 columns, staged. */
function passStaged(token: Token, keyWidth: i32, state: usize, valueWidth: i32, v: usize, o: usize, width: i32): void {
  const panel = token.panel;
  loadPanel(panel, state, keyWidth, valueWidth, width);
  packRows(token.values, 16, v, 0, 1, width);
  for (let j = 0; j < width; j += 4) passColumns(token, keyWidth, at(panel, j), 64, at(token.values, j), at(token.outputs, j));
  unpackRows(o, 0, token.outputs, 16, 1, width);
  storePanel(state, valueWidth, panel, keyWidth, width);
}

// args: the shared words (Job) with slots [rows] and the slab [slots,HV,K,V] as initial and cuSeqlens, then o; oRow, scale.
// One unit is (row, value head, block of `columns` value columns).
export function recurrence_deltaStep_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = readJob(scratch, args, OPERANDS);
  const o = pointerAt(args, 8);
  const oRow = intAt(args, ownWord(OPERANDS));
  const token = layOut(scratch + JOB_BYTES, job.keyWidth);
  token.scale = floatAt(args, ownWord(OPERANDS) + 1);
  token.flags = job.flags;
  if (oneKey(job)) token.write = token.erase;
  const valueWidth = job.valueWidth;
  const blocks = (valueWidth + job.columns - 1) / job.columns;
  const ordered = (job.flags & (UNDECAYED | READ_FIRST)) != 0;
  for (let unit = begin; unit < end; unit++) {
    const pair = unit / blocks;
    const head = pair % job.valueHeads;
    const row = pair / job.valueHeads;
    const first = (unit % blocks) * job.columns;
    const last = min(first + job.columns, valueWidth);
    const slot = load<i32>(at(job.initial, row)) * job.valueHeads + head;
    const state = rowAt(job.cuSeqlens, slot, job.keyWidth * valueWidth, 0);
    loadToken(job, token, row, head);
    for (let column = first; column < last; column += 16) {
      const v = rowAt(job.v, row, job.vRow, head * valueWidth + column);
      const to = rowAt(o, row, oRow, head * valueWidth + column);
      const width = min(16, last - column);
      if (width < 16 || ordered) passStaged(token, job.keyWidth, at(state, column), valueWidth, v, to, width);
      else passPanel(token, job.keyWidth, at(state, column), (<usize>valueWidth) << 2, v, to);
    }
  }
}
