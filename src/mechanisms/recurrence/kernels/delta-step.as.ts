// One token of the delta rule for many rows, each with a state of its own in a slab: nothing moves but what changes.
import { floatAt, fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { at, dotWide, gate4, Job, JOB_BYTES, KEY, loadPanel, NONE, oneKey, ownWord, packRows, padded, READ_FIRST, readJob, rowAt, slowMask, storePanel, touchRows, UNDECAYED, unpackRows } from "./delta-job.as";

/** Operands: the shared ones, the slots and the slab in place of initial state and cuSeqlens, then o. */
const OPERANDS: i32 = 9;

/** The rows of one token in scratch memory. */
// @ts-ignore: decorator
@unmanaged class Token {
  erase: usize;
  write: usize;
  query: usize;
  /** Erase key and query times exp(g). */
  decayedErase: usize;
  decayedQuery: usize;
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
  token.decayedErase = token.gate + rowBytes;
  token.decayedQuery = token.decayedErase + rowBytes;
  token.panel = token.decayedQuery + rowBytes;
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
  } else {
    const gate = job.decay == NONE ? f32x4.splat(-0.0) : gate4(v128.load32_splat(rowAt(job.g, row, job.gRow, head)));
    for (let c = 0; c < stride; c += 4) v128.store(at(token.gate, c), gate);
  }
  for (let c = 0; c < stride; c += 4) {
    const gate = v128.load(at(token.gate, c));
    const kept = f32x4.add(gate, v128.and(f32x4.splat(1), slowMask(gate)));
    v128.store(at(token.decayedErase, c), f32x4.mul(kept, v128.load(at(token.erase, c))));
    v128.store(at(token.decayedQuery, c), f32x4.mul(kept, v128.load(at(token.query, c))));
  }
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

/** u = β (v − r) */
// @ts-ignore: decorator
@inline function writtenOf(token: Token, v: v128, r: v128): v128 {
  return f32x4.mul(f32x4.splat(token.beta), f32x4.sub(v, r));
}

/** o = scale (p + overlap u) */
// @ts-ignore: decorator
@inline function storeOutput(token: Token, o: usize, p: v128, u: v128): void {
  v128.store(o, f32x4.mul(f32x4.splat(token.scale), fma(f32x4.splat(token.overlap), u, p)));
}

/**
 * Sixteen columns of the delta family's own order: what passColumns does, with the decay on the side of key and query, as
 * Σ (exp(g) k) s, so that the first pass decays no state. The second one does, as slow gates want it: s + (exp(g) − 1) s.
 */
function passPanel(token: Token, keyWidth: i32, state: usize, stateRow: usize, v: usize, o: usize, decay: i32): void {
  let r0 = f32x4.splat(0), r1 = r0, r2 = r0, r3 = r0;
  let p0 = r0, p1 = r0, p2 = r0, p3 = r0;
  let s = state;
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const k = v128.load32_splat(at(token.decayedErase, c));
    const x = v128.load32_splat(at(token.decayedQuery, c));
    const s0 = v128.load(s);
    r0 = fma(k, s0, r0);
    p0 = fma(x, s0, p0);
    const s1 = v128.load(s, 16);
    r1 = fma(k, s1, r1);
    p1 = fma(x, s1, p1);
    const s2 = v128.load(s, 32);
    r2 = fma(k, s2, r2);
    p2 = fma(x, s2, p2);
    const s3 = v128.load(s, 48);
    r3 = fma(k, s3, r3);
    p3 = fma(x, s3, p3);
  }
  const u0 = writtenOf(token, v128.load(v), r0), u1 = writtenOf(token, v128.load(v, 16), r1);
  const u2 = writtenOf(token, v128.load(v, 32), r2), u3 = writtenOf(token, v128.load(v, 48), r3);
  storeOutput(token, o, p0, u0), storeOutput(token, o + 16, p1, u1);
  storeOutput(token, o + 32, p2, u2), storeOutput(token, o + 48, p3, u3);
  if (decay == NONE) writePanel(token, keyWidth, state, stateRow, u0, u1, u2, u3);
  else decayPanel(token, keyWidth, state, stateRow, u0, u1, u2, u3);
}

// @ts-ignore: decorator
@inline function writePanel(token: Token, keyWidth: i32, s: usize, stateRow: usize, u0: v128, u1: v128, u2: v128, u3: v128): void {
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const w = v128.load32_splat(at(token.write, c));
    v128.store(s, fma(w, u0, v128.load(s)));
    v128.store(s, fma(w, u1, v128.load(s, 16)), 16);
    v128.store(s, fma(w, u2, v128.load(s, 32)), 32);
    v128.store(s, fma(w, u3, v128.load(s, 48)), 48);
  }
}

// @ts-ignore: decorator
@inline function decayPanel(token: Token, keyWidth: i32, s: usize, stateRow: usize, u0: v128, u1: v128, u2: v128, u3: v128): void {
  for (let c = 0; c < keyWidth; c++, s += stateRow) {
    const a = v128.load32_splat(at(token.gate, c));
    const slow = slowMask(a);
    const w = v128.load32_splat(at(token.write, c));
    const s0 = v128.load(s), s1 = v128.load(s, 16), s2 = v128.load(s, 32), s3 = v128.load(s, 48);
    v128.store(s, fma(w, u0, fma(a, s0, v128.and(s0, slow))));
    v128.store(s, fma(w, u1, fma(a, s1, v128.and(s1, slow))), 16);
    v128.store(s, fma(w, u2, fma(a, s2, v128.and(s2, slow))), 32);
    v128.store(s, fma(w, u3, fma(a, s3, v128.and(s3, slow))), 48);
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
    // Panels meet a state four lines of a row apart: read along its rows first, it comes as fast as memory gives it.
    store<i32>(token.panel, touchRows(at(state, first), valueWidth, job.keyWidth, last - first));
    loadToken(job, token, row, head);
    for (let column = first; column < last; column += 16) {
      const v = rowAt(job.v, row, job.vRow, head * valueWidth + column);
      const to = rowAt(o, row, oRow, head * valueWidth + column);
      const width = min(16, last - column);
      if (width < 16 || ordered) passStaged(token, job.keyWidth, at(state, column), valueWidth, v, to, width);
      else passPanel(token, job.keyWidth, at(state, column), (<usize>valueWidth) << 2, v, to, job.decay);
    }
  }
}
