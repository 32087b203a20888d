// What forward and backward need of a chunk of n tokens before they touch a state: packed rows, segment decays, and the
// two triangles M (erase keys against write keys, below the diagonal, negated) and N (queries against write keys, with
// the diagonal), both with the decay between their tokens inside.
import { gemmLower, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { exp4 } from "../../../device/wasm/kernels/math.as";
import { at, gate1, gate4, Job, KEY, NONE, oneKey, packColumn, packRows, padded, rowAt } from "./delta-job.as";
import { decayPairs } from "./delta-pairs.as";

/** One chunk of one head in scratch memory. */
// @ts-ignore: decorator
@unmanaged export class Chunk {
  /** n erase keys, then n queries; n write keys, which are the erase keys where a job has one key. */
  plainX: usize;
  plainW: usize;
  /** The same, with decays per channel multiplied by the decay from the chunk's beginning, and by that to its end. */
  x: usize;
  w: usize;
  /** Write keys transposed, undecayed, rows of `span` floats. */
  keysAcross: usize;
  m: usize;
  n: usize;
  beta: usize;
  /** Decay from the chunk's beginning through token i, one number a token; 1 where it is in x already. */
  into: usize;
  /** Decay behind token j to the chunk's end, one number a token; 1 with decays per channel. */
  leave: usize;
  /** Gate of the whole chunk: one number, or one a key channel. */
  total: usize;
  /** Running segment sums, one a token or one a channel. */
  sums: usize;
  /** Where the decays between two tokens are kept, rows as in a triangle; null where nobody asks for them. */
  between: usize;
  /** Decays per channel, and their exp. */
  g: usize;
  factors: usize;
  /** Decays per channel: from the chunk's beginning through token i, and behind it to the end. */
  intoRows: usize;
  leaveRows: usize;
  /** Floats of a row of keys, and of a row of a triangle. */
  stride: i32;
  span: i32;
  tokens: i32;
}

export const CHUNK_BYTES: i32 = 128;

/** One key erases and writes: its rows are packed once. */
export function shareKeys(chunk: Chunk, perKey: bool): void {
  chunk.plainW = chunk.plainX;
  if (!perKey) chunk.w = chunk.x;
}

/** Lays a chunk out from `top` on; returns the first free byte. */
export function layOutChunk(chunk: Chunk, top: usize, keyWidth: i32, tokens: i32, perKey: bool): usize {
  const stride = padded(keyWidth, 4);
  const span = padded(tokens, 4);
  const rows = (<usize>(stride * span)) << 2;
  const square = (<usize>(span * span)) << 2;
  chunk.stride = stride;
  chunk.span = span;
  chunk.between = 0;
  chunk.plainX = chunk.x = top;
  top += rows << 1;
  chunk.plainW = chunk.w = top;
  top += rows;
  chunk.keysAcross = top;
  top += rows;
  chunk.m = top;
  top += square;
  chunk.n = top;
  top += square;
  chunk.beta = top;
  chunk.into = at(chunk.beta, span);
  chunk.leave = at(chunk.into, span);
  chunk.total = at(chunk.leave, span);
  chunk.sums = at(chunk.total, stride);
  top = at(chunk.sums, max(stride, span));
  if (perKey) {
    chunk.x = top;
    top += rows << 1;
    chunk.w = top;
    top += rows;
    chunk.g = top;
    top += rows;
    chunk.factors = top;
    top += rows;
    chunk.intoRows = top;
    top += rows;
    chunk.leaveRows = top;
    top += rows;
  }
  return (top + 63) & ~63;
}

function fillOnes(to: usize, n: i32): void {
  for (let i = 0; i < n; i++) store<f32>(at(to, i), 1);
}

/** to = a b, n floats (a multiple of 4). */
// @ts-ignore: decorator
@inline function multiply(to: usize, a: usize, b: usize, n: i32): void {
  for (let c = 0; c < n; c += 4) v128.store(at(to, c), f32x4.mul(v128.load(at(a, c)), v128.load(at(b, c))));
}

/**
 * Row i of both triangles by the decays of that row, M negated; zeros where a later token would stand. `decays` null
 * means none.
 */
function finishRow(chunk: Chunk, i: i32, decays: usize, query: bool): void {
  const m = at(chunk.m, i * chunk.span);
  const n = at(chunk.n, i * chunk.span);
  for (let j = 0; j <= i; j += 4) {
    const d = decays == 0 ? f32x4.splat(1) : v128.load(at(decays, j));
    v128.store(at(m, j), f32x4.neg(f32x4.mul(v128.load(at(m, j)), d)));
    if (query) v128.store(at(n, j), f32x4.mul(v128.load(at(n, j)), d));
  }
  for (let j = i; j < chunk.span; j++) store<f32>(at(m, j), 0);
  if (query) for (let j = i + 1; j < chunk.span; j++) store<f32>(at(n, j), 0);
}

/** Scalar decays: the sums of every segment that ends at token i grow by its decay; none is a difference. */
function decayRows(job: Job, chunk: Chunk, row: i32, head: i32, query: bool): void {
  const tokens = chunk.tokens;
  const sums = chunk.sums;
  const decays = chunk.leave;
  let whole: f32 = 0;
  for (let i = 0; i < tokens; i++) {
    const g = load<f32>(rowAt(job.g, row + i, job.gRow, head));
    const wide = f32x4.splat(g);
    for (let j = 0; j < i; j += 4) v128.store(at(sums, j), f32x4.add(v128.load(at(sums, j)), wide));
    if ((i & 3) == 0) v128.store(at(sums, i), f32x4.splat(0));
    else store<f32>(at(sums, i), 0);
    for (let j = 0; j <= i; j += 4) v128.store(at(decays, j), exp4(v128.load(at(sums, j))));
    if (chunk.between != 0) memory.copy(at(chunk.between, i * chunk.span), decays, (<usize>padded(i + 1, 4)) << 2);
    finishRow(chunk, i, decays, query);
    whole += g;
    store<f32>(at(chunk.into, i), whole);
  }
  for (let i = 0; i < tokens; i += 4) v128.store(at(chunk.into, i), exp4(v128.load(at(chunk.into, i))));
  store<f32>(chunk.total, gate1(whole));
}

/** Sums from the chunk's beginning, and towards its end, multiplied into the rows; the factors stay for backward. */
function decayChannels(chunk: Chunk, query: bool): void {
  const stride = chunk.stride;
  const tokens = chunk.tokens;
  const sums = chunk.sums;
  const rowBytes = (<usize>stride) << 2;
  memory.fill(sums, 0, rowBytes);
  for (let i = 0; i < tokens; i++) {
    const into = chunk.intoRows + (<usize>i) * rowBytes;
    const g = chunk.g + (<usize>i) * rowBytes;
    for (let c = 0; c < stride; c += 4) {
      const sum = f32x4.add(v128.load(at(sums, c)), v128.load(at(g, c)));
      v128.store(at(sums, c), sum);
      v128.store(at(into, c), exp4(sum));
    }
    const erase = (<usize>i) * rowBytes;
    const read = (<usize>(tokens + i)) * rowBytes;
    multiply(chunk.x + erase, chunk.plainX + erase, into, stride);
    if (query) multiply(chunk.x + read, chunk.plainX + read, into, stride);
  }
  for (let c = 0; c < stride; c += 4) v128.store(at(chunk.total, c), gate4(v128.load(at(sums, c))));
  memory.fill(sums, 0, rowBytes);
  for (let i = tokens - 1; i >= 0; i--) {
    const leave = chunk.leaveRows + (<usize>i) * rowBytes;
    const g = chunk.g + (<usize>i) * rowBytes;
    for (let c = 0; c < stride; c += 4) {
      const sum = v128.load(at(sums, c));
      v128.store(at(leave, c), exp4(sum));
      v128.store(at(sums, c), f32x4.add(sum, v128.load(at(g, c))));
    }
    multiply(chunk.w + (<usize>i) * rowBytes, chunk.plainW + (<usize>i) * rowBytes, leave, stride);
  }
}

/** Decays per channel: pairs of tokens by running products, whole rows by segment sums. */
function prepareChannels(job: Job, chunk: Chunk, row: i32, head: i32, query: bool): void {
  const tokens = chunk.tokens;
  const stride = chunk.stride;
  packRows(chunk.g, stride, rowAt(job.g, row, job.gRow, head * job.keyWidth), job.gRow, tokens, job.keyWidth);
  const end = at(chunk.g, tokens * stride);
  let to = chunk.factors;
  for (let from = chunk.g; from < end; from += 16, to += 16) v128.store(to, exp4(v128.load(from)));
  const x = chunk.plainX;
  decayPairs(x, at(x, tokens * stride), chunk.plainW, chunk.factors, chunk.keysAcross, tokens, stride, chunk.m, chunk.n, chunk.span, query);
  for (let i = 0; i < tokens; i++) finishRow(chunk, i, 0, query);
  decayChannels(chunk, query);
  fillOnes(chunk.into, tokens);
  fillOnes(chunk.leave, tokens);
}

/** Everything of the `tokens` tokens from `row` on; without `query` what only the output needs is left out. */
export function prepareChunk(job: Job, chunk: Chunk, row: i32, tokens: i32, head: i32, query: bool): void {
  const keyWidth = job.keyWidth;
  const stride = chunk.stride;
  const first = (head / (job.valueHeads / job.heads)) * keyWidth;
  chunk.tokens = tokens;
  const x = chunk.plainX;
  packRows(x, stride, rowAt(job.erase, row, job.eraseRow, first), job.eraseRow, tokens, keyWidth);
  const queries = at(x, tokens * stride);
  if (query) packRows(queries, stride, rowAt(job.q, row, job.qRow, first), job.qRow, tokens, keyWidth);
  if (!oneKey(job))
    packRows(chunk.plainW, stride, rowAt(job.write, row, job.writeRow, first), job.writeRow, tokens, keyWidth);
  packColumn(chunk.beta, rowAt(job.beta, row, job.betaRow, head), job.betaRow, tokens);
  if (job.decay == KEY) {
    prepareChannels(job, chunk, row, head, query);
    return;
  }
  const rowBytes = (<usize>stride) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  transposeBlock(tokens, stride, chunk.plainW, rowBytes, chunk.keysAcross, spanBytes);
  gemmLower(tokens, tokens, stride, x, rowBytes, 4, chunk.keysAcross, spanBytes, chunk.m, spanBytes, 0);
  if (query)
    gemmLower(tokens, tokens, stride, queries, rowBytes, 4, chunk.keysAcross, spanBytes, chunk.n, spanBytes, 0);
  if (job.decay == NONE) {
    for (let i = 0; i < tokens; i++) finishRow(chunk, i, 0, query);
    fillOnes(chunk.into, tokens);
    fillOnes(chunk.leave, tokens);
    return;
  }
  decayRows(job, chunk, row, head, query);
}

/** Multiplies row i of `columns` floats by the decay behind token i, where that is not in the write keys. */
export function leaveRows(job: Job, chunk: Chunk, rows: usize, wide: i32, columns: i32): void {
  if (job.decay == NONE || job.decay == KEY) return;
  for (let i = 0; i < chunk.tokens; i++) {
    const leave = v128.load32_splat(at(chunk.leave, i));
    const row = at(rows, i * wide);
    for (let j = 0; j < columns; j += 4) v128.store(at(row, j), f32x4.mul(leave, v128.load(at(row, j))));
  }
}
