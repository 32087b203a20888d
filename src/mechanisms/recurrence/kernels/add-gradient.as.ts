// What the two scans of the additive backward share: the record of one value head and its memory.
import { IDENTITY, mappedRows } from "../../feature-maps/kernels/pointwise.as";
import { Chunk, HEAD, KEY, NONE, RECORD, SCALAR, layTables, prepareChunk, setRows } from "./add-decay.as";
import { MAP_SHIFT, NORMALIZE } from "./add-forward.as";
import { clear, fillWith, loadRows, padded } from "./add-rows.as";

/** Flags beyond those of the forward: gradients that are wanted. FINAL_… say which cotangents are there. */
export const GATE_GRADIENT: i32 = 256;
export const INITIAL_STATE_GRADIENT: i32 = 512;
export const INITIAL_NORMALIZER_GRADIENT: i32 = 1024;

@unmanaged
export class GradientArguments {
  q: u32; k: u32; v: u32; g: u32; initialState: u32; initialNormalizer: u32; cuSeqlens: u32;
  dOutput: u32; dFinalState: u32; dFinalNormalizer: u32;
  dq: u32; dk: u32; dv: u32; dg: u32; dInitialState: u32; dInitialNormalizer: u32;
  dqParts: u32; dkParts: u32; dgParts: u32;
  flags: i32; sequences: i32; time: i32; heads: i32; valueHeads: i32; keyWidth: i32; valueWidth: i32;
  qStride: i32; kStride: i32; vStride: i32; gStride: i32; dOutputStride: i32;
  dqStride: i32; dkStride: i32; dvStride: i32; dgStride: i32;
  chunk: i32; parts: i32; keepEvery: i32; keyHeads: i32; together: i32;
  scale: f32; eps: f32;
}

/** One value head of one sequence. Addresses are those of the sequence's first row until `openChunk` moves them. */
@unmanaged
export class Gradient extends Chunk {
  flags: i32;
  map: i32;
  valueWidth: i32;
  length: i32;
  /** Whether dq and dk add to what earlier value heads of the group left. */
  add: bool;
  /** The sequence's first rows. */
  q0: usize; k0: usize; v0: usize; g0: usize; dO0: usize; dq0: usize; dk0: usize; dv0: usize; dg0: usize;
  /** The chunk's rows: with a decay or mapped copies that are padded with zeros, else the operands' own; and results in place. */
  q: usize; k: usize; v: usize; dO: usize; dq: usize; dk: usize; dv: usize; dg: usize;
  qStep: usize; kStep: usize; vStep: usize; dOStep: usize;
  copies: usize;
  qRow: usize; kRow: usize; vRow: usize; dORow: usize; dqRow: usize; dkRow: usize; dvRow: usize; dgRow: usize;
  initialState: usize; initialNormalizer: usize; dFinalState: usize; dFinalNormalizer: usize;
  dInitialState: usize; dInitialNormalizer: usize;
  scale: f32; eps: f32;
  /** The state before a chunk, transposed, with the normaliser as one more row; and R, the gradient behind it. */
  state: usize; normalizer: usize; states: usize; stateBytes: usize;
  stateGradient: usize; stateRow: usize; normalizerGradient: usize;
  /** alpha multiplies dO wherever it meets Sᵀq, sigma is the gradient that reaches z·q (0: no normaliser). */
  alpha: usize; sigma: usize; alphas: usize; sigmas: usize; scaled: usize; ones: usize;
  scores: usize; weights: usize; diagonal: usize; transposedK: usize; transposedV: usize; turned: usize;
  decayedQ: usize; decayedK: usize; pairs: usize;
  result: usize; inner: usize;
  /** For the gate: q ∘ dq, k ∘ dk from behind the chunk and from inside it; states kept; the sum of a fixed decay's. */
  gateQ: usize; gateK: usize; gateInner: usize; passing: usize; kept: usize; local: usize; every: i32;
  gateTotal: f64;
}

/** Lays from `at` what value heads side by side use one after another; returns the address behind it. */
function layShared(r: Gradient, at: usize): usize {
  const rows = <usize>r.size;
  const keys = rows * r.row;
  const channels = <usize>r.keyWidth;
  if (r.decay != HEAD) at = layTables(r, at);
  r.scores = at; at += rows * r.scoreRow;
  r.weights = at; at += rows * r.scoreRow;
  r.transposedK = at; at += channels * r.scoreRow;
  r.transposedV = at; at += <usize>r.valueWidth * r.scoreRow;
  r.turned = at; at += channels * r.scoreRow;
  r.decayedQ = at; at += keys;
  r.decayedK = at; at += keys;
  r.copies = at; at += 2 * keys + 2 * rows * r.stateRow;
  r.result = at; at += keys;
  r.inner = at; at += keys;
  r.gateQ = at; at += keys;
  r.gateK = at; at += keys;
  r.gateInner = at; at += keys;
  r.pairs = at; at += rows << 5;
  r.diagonal = at; at += r.scoreRow;
  r.ones = at; at += r.scoreRow;
  r.scaled = at; at += r.scoreRow;
  r.passing = at; at += channels * r.stateRow;
  fillWith(r.ones, padded(r.size), 1);
  fillWith(r.scaled, padded(r.size), r.scale);
  clear(r.result, <i32>(keys >> 2));
  clear(r.inner, <i32>(keys >> 2));
  return at;
}

/** Lays what belongs to one value head alone: states, gradients of them, factors of every row. */
function layOwn(r: Gradient, a: GradientArguments, at: usize): usize {
  if (r.decay == HEAD) at = layTables(r, at);
  r.states = at; at += r.stateBytes;
  r.stateGradient = at; at += <usize>r.keyWidth * r.stateRow;
  r.normalizerGradient = at; at += r.row;
  r.alphas = r.scaled;
  r.sigmas = 0;
  if (r.flags & NORMALIZE) {
    const line = <usize>padded(a.time) << 2;
    r.alphas = at; at += line;
    r.sigmas = at; at += line;
  }
  if (!(r.flags & GATE_GRADIENT)) return at;
  const chunks = (a.time + r.size - 1) / r.size;
  r.local = at; at += <usize>r.every * r.stateBytes;
  r.kept = at;
  return at + <usize>((chunks + r.every - 1) / r.every) * r.stateBytes;
}

/** Records of value heads that are walked side by side, their memory laid into scratch behind them. */
export function openGradient(a: GradientArguments, scratch: usize): Gradient {
  const r = changetype<Gradient>(scratch);
  r.decay = a.flags & 3;
  r.keyWidth = a.keyWidth;
  r.valueWidth = a.valueWidth;
  r.size = r.decay == KEY ? min(a.chunk, 16) : a.chunk;
  setRows(r);
  r.flags = a.flags;
  r.map = a.flags >> MAP_SHIFT;
  r.scale = a.scale;
  r.eps = a.eps;
  r.qRow = <usize>a.qStride << 2;
  r.kRow = <usize>a.kStride << 2;
  r.vRow = <usize>a.vStride << 2;
  r.dORow = <usize>a.dOutputStride << 2;
  r.dvRow = <usize>a.dvStride << 2;
  r.gRow = r.decay >= SCALAR ? <usize>a.gStride << 2 : 0;
  r.dgRow = r.decay >= SCALAR ? <usize>a.dgStride << 2 : 0;
  r.stateRow = <usize>padded(r.valueWidth) << 2;
  r.stateBytes = <usize>(r.valueWidth + 1) * r.row;
  r.every = a.keepEvery;
  let at = layShared(r, scratch + <usize>a.together * RECORD);
  for (let i = a.together - 1; i >= 0; i--) {
    const own = scratch + <usize>i * RECORD;
    if (i > 0) memory.copy(own, scratch, RECORD);
    at = layOwn(changetype<Gradient>(own), a, at);
  }
  return r;
}

/** Rows of an operand as they lie, or copied: copies pay where scaled ones are read beside them again and again. */
function rowsOf(r: Gradient, from: usize, fromRow: usize, to: usize, toRow: usize, width: i32): usize {
  if (r.decay == NONE) return from;
  loadRows(to, toRow, from, fromRow, r.rows, width);
  return to;
}

/** Rows of keys or queries: mapped copies where there is a map. */
function keyRowsOf(r: Gradient, from: usize, fromRow: usize, to: usize): usize {
  if (r.map == IDENTITY) return rowsOf(r, from, fromRow, to, r.row, r.keyWidth);
  return mappedRows(r.map, from, fromRow, r.rows, r.keyWidth, to, r.row);
}

/** The i-th of the records side by side. */
export function recordAt(scratch: usize, i: i32): Gradient {
  return changetype<Gradient>(scratch + <usize>i * RECORD);
}

/** Makes `state`, with the normaliser as one more row, the state before the open chunk. */
export function setState(r: Gradient, state: usize): void {
  r.state = state;
  r.normalizer = state + <usize>r.valueWidth * r.row;
}

/** Moves the record to the chunk whose first row is `t`: its keys, values and tables. */
export function openChunk(r: Gradient, t: i32): void {
  const at = <usize>t;
  r.rows = min(r.size, r.length - t);
  r.g = r.g0 + at * r.gRow;
  prepareChunk(r);
  r.kStep = r.decay == NONE && r.map == IDENTITY ? r.kRow : r.row;
  r.vStep = r.decay == NONE ? r.vRow : r.stateRow;
  r.k = keyRowsOf(r, r.k0 + at * r.kRow, r.kRow, r.copies);
  r.v = rowsOf(r, r.v0 + at * r.vRow, r.vRow, r.copies + <usize>r.size * r.row, r.stateRow, r.valueWidth);
}

/** The same with its queries, what reaches them, and where the results go. */
export function openBoth(r: Gradient, t: i32): void {
  openChunk(r, t);
  const at = <usize>t;
  const copies = r.copies + <usize>r.size * (r.row + r.stateRow);
  r.qStep = r.decay == NONE && r.map == IDENTITY ? r.qRow : r.row;
  r.dOStep = r.decay == NONE ? r.dORow : r.stateRow;
  r.q = keyRowsOf(r, r.q0 + at * r.qRow, r.qRow, copies);
  r.dO = rowsOf(r, r.dO0 + at * r.dORow, r.dORow, copies + <usize>r.size * r.row, r.stateRow, r.valueWidth);
  r.dq = r.dq0 + at * r.dqRow;
  r.dk = r.dk0 + at * r.dkRow;
  r.dv = r.dv0 + at * r.dvRow;
  r.dg = r.dg0 + at * r.dgRow;
  const normalized = r.flags & NORMALIZE;
  r.alpha = normalized ? r.alphas + (at << 2) : r.alphas;
  r.sigma = normalized ? r.sigmas + (at << 2) : 0;
}
