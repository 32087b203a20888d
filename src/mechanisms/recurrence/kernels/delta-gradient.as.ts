// Gradients of one chunk of the delta rule, from the gradient of the state that leaves it to that of the one that enters.
// With y = (−into e, into dO') for the erase keys and the queries, X = (K, Q) and A the pair gradients times decays:
//   e = beta (I + M)⁻ᵀ (W dS + Nᵀ dO'),   dX = y Sᵀ + A W,   dW = leave u dSᵀ + Aᵀ X,   dS <- decay dS + Xᵀ y
import { gemmBlock, gemmLower, gemmLowerLeft, gemmUpperLeft, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { Chunk, leaveRows } from "./delta-chunk.as";
import { addLanes, at, dotWide, Job, KEY, NONE, packRows, padded, slowMask } from "./delta-job.as";
import { pairGradients } from "./delta-pair-gradients.as";

/** Scratch of the backward pass beside the chunk. Rows of values have `wide` floats, rows of keys `keyRow`. */
// @ts-ignore: decorator
@unmanaged export class Gradient {
  /** Gradient of the state, [K][wide]; its transpose and that of the entering state, [V][keyRow]. */
  dState: usize;
  across: usize;
  /** Written values u, their transpose (rows of `span`), and v − retrieved before beta. */
  u: usize;
  uAcross: usize;
  dO: usize;
  /** Gradient of v, which is beta times that of u. */
  e: usize;
  /** The two scaled copies: n rows of −into e, n rows of into dO'. */
  y: usize;
  /** Pair gradients of erase keys and of queries, rows of `span`. */
  pairsErase: usize;
  pairsQuery: usize;
  /** Gradients of n erase keys and n queries; of n write keys. */
  dX: usize;
  dW: usize;
  dBeta: usize;
  dG: usize;
  /** Sums for the gradient of g: of what enters a token, of what leaves it, one or one a channel. */
  enters: usize;
  leaves: usize;
  boundary: usize;
  wide: i32;
  keyRow: i32;
  /** Columns in use, a multiple of 16. */
  columns: i32;
  scale: f32;
}

export const GRADIENT_BYTES: i32 = 128;

/** Rows of n floats in whole cache lines, an odd number of them, so that a column of rows fills every set. */
export function oddLines(n: i32): i32 {
  const lines = (n + 15) >> 4;
  return (lines | 1) << 4;
}

export function layOutGradient(gradient: Gradient, top: usize, keyWidth: i32, valueWidth: i32, tokens: i32): usize {
  const wide = oddLines(valueWidth);
  const keyRow = oddLines(keyWidth);
  const span = padded(tokens, 4);
  const stride = padded(keyWidth, 4);
  const columns = padded(valueWidth, 16);
  const values = (<usize>(span * wide)) << 2;
  gradient.wide = wide;
  gradient.keyRow = keyRow;
  gradient.columns = columns;
  gradient.dState = top;
  top += (<usize>(stride * wide)) << 2;
  gradient.across = top;
  top += (<usize>(columns * keyRow)) << 2;
  gradient.u = top;
  top += values;
  gradient.uAcross = top;
  top += (<usize>(columns * span)) << 2;
  gradient.dO = top;
  top += values;
  gradient.e = top;
  top += values;
  gradient.y = top;
  top += values << 1;
  gradient.pairsErase = top;
  top += (<usize>(span * span)) << 2;
  gradient.pairsQuery = top;
  top += (<usize>(span * span)) << 2;
  gradient.dX = top;
  top += (<usize>(2 * span * keyRow)) << 2;
  gradient.dW = top;
  top += (<usize>(span * keyRow)) << 2;
  gradient.dBeta = top;
  top += (<usize>span) << 2;
  const rows = (<usize>(span * stride)) << 2;
  gradient.dG = top;
  top += rows;
  gradient.enters = top;
  top += rows;
  gradient.leaves = top;
  top += rows;
  gradient.boundary = top;
  top += (<usize>stride) << 2;
  return (top + 63) & ~63;
}

/** The gate of a chunk on rows of `columns` floats; one row a key channel. */
export function decayState(job: Job, chunk: Chunk, state: usize, wide: i32, columns: i32, from: usize): void {
  const perKey = job.decay == KEY;
  for (let c = 0; c < job.keyWidth; c++) {
    const a = job.decay == NONE ? f32x4.splat(-0.0) : v128.load32_splat(perKey ? at(chunk.total, c) : chunk.total);
    const slow = slowMask(a);
    const to = at(state, c * wide);
    const source = at(from, c * wide);
    for (let j = 0; j < columns; j += 4) {
      const s = v128.load(at(source, j));
      v128.store(at(to, j), fma(a, s, v128.and(s, slow)));
    }
  }
}

/** u = beta w, and dO' = scale dO, in packed rows. */
function packValues(chunk: Chunk, gradient: Gradient, w: usize, dO: usize, dORow: i32, valueWidth: i32): void {
  const wide = gradient.wide;
  packRows(gradient.dO, wide, dO, dORow, chunk.tokens, valueWidth);
  const scale = f32x4.splat(gradient.scale);
  for (let i = 0; i < chunk.tokens; i++) {
    const beta = v128.load32_splat(at(chunk.beta, i));
    for (let j = 0; j < gradient.columns; j += 4) {
      const o = at(gradient.dO, i * wide + j);
      v128.store(o, f32x4.mul(scale, v128.load(o)));
      v128.store(at(gradient.u, i * wide + j), f32x4.mul(beta, v128.load(at(w, i * wide + j))));
    }
  }
}

/**
 * Backward substitution, last row first: a_i = e_i − sum over m > i of M_mi e_m, then e_i = beta a_i. The gradient of
 * beta is a_i · w_i, its four lanes in a row of `lanes`.
 */
function substituteBack(chunk: Chunk, e: usize, w: usize, wide: i32, lanes: usize): void {
  const wideBytes = (<usize>wide) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  const end = e + (<usize>chunk.tokens) * wideBytes;
  for (let i = chunk.tokens - 1; i >= 0; i--) {
    const row = e + (<usize>i) * wideBytes;
    let a0 = v128.load(row), a1 = v128.load(row, 16), a2 = v128.load(row, 32), a3 = v128.load(row, 48);
    let m = chunk.m + (<usize>(i + 1)) * spanBytes + ((<usize>i) << 2);
    for (let from = row + wideBytes; from < end; from += wideBytes, m += spanBytes) {
      const x = v128.load32_splat(m);
      a0 = fma(x, v128.load(from), a0);
      a1 = fma(x, v128.load(from, 16), a1);
      a2 = fma(x, v128.load(from, 32), a2);
      a3 = fma(x, v128.load(from, 48), a3);
    }
    const own = w + (<usize>i) * wideBytes;
    const lane = lanes + ((<usize>i) << 4);
    let sum = fma(a0, v128.load(own), v128.load(lane));
    sum = fma(a1, v128.load(own, 16), sum);
    sum = fma(a2, v128.load(own, 32), sum);
    v128.store(lane, fma(a3, v128.load(own, 48), sum));
    const beta = v128.load32_splat(at(chunk.beta, i));
    v128.store(row, f32x4.mul(beta, a0));
    v128.store(row, f32x4.mul(beta, a1), 16);
    v128.store(row, f32x4.mul(beta, a2), 32);
    v128.store(row, f32x4.mul(beta, a3), 48);
  }
}

/** e and the gradient of beta. */
function writtenValues(job: Job, chunk: Chunk, gradient: Gradient, w: usize): void {
  const wideBytes = (<usize>gradient.wide) << 2;
  const keyBytes = (<usize>chunk.stride) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  const n = chunk.tokens;
  const columns = gradient.columns;
  gemmBlock(n, columns, job.keyWidth, chunk.w, keyBytes, 4, gradient.dState, wideBytes, gradient.e, wideBytes, 0);
  leaveRows(job, chunk, gradient.e, gradient.wide, columns);
  gemmUpperLeft(n, columns, n, chunk.n, 4, spanBytes, gradient.dO, wideBytes, gradient.e, wideBytes, 1);
  const lanes = gradient.y;
  memory.fill(lanes, 0, (<usize>n) << 4);
  for (let j = 0; j < columns; j += 16)
    substituteBack(chunk, at(gradient.e, j), at(w, j), gradient.wide, lanes);
  for (let i = 0; i < n; i++) store<f32>(at(gradient.dBeta, i), addLanes(v128.load(lanes + ((<usize>i) << 4))));
}

/** Gradients of M and N before their decays: e_i · u_j and dO'_i · u_j for j <= i. */
function pairProducts(job: Job, chunk: Chunk, gradient: Gradient): void {
  const n = chunk.tokens;
  const width = job.valueWidth;
  const wideBytes = (<usize>gradient.wide) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  transposeBlock(n, width, gradient.u, wideBytes, gradient.uAcross, spanBytes);
  gemmLower(n, n, width, gradient.e, wideBytes, 4, gradient.uAcross, spanBytes, gradient.pairsErase, spanBytes, 0);
  gemmLower(n, n, width, gradient.dO, wideBytes, 4, gradient.uAcross, spanBytes, gradient.pairsQuery, spanBytes, 0);
}

/** −into e above into dO'. */
function scaleRows(chunk: Chunk, gradient: Gradient): void {
  const wide = gradient.wide;
  const n = chunk.tokens;
  for (let i = 0; i < n; i++) {
    const into = v128.load32_splat(at(chunk.into, i));
    const minus = f32x4.neg(into);
    for (let j = 0; j < gradient.columns; j += 4) {
      const own = i * wide + j;
      v128.store(at(gradient.y, own), f32x4.mul(minus, v128.load(at(gradient.e, own))));
      v128.store(at(gradient.y, n * wide + own), f32x4.mul(into, v128.load(at(gradient.dO, own))));
    }
  }
}

/** A of the scalar decays in place of the pair products: times the decays between, zeros above, erase negated. */
function decayPairProducts(job: Job, chunk: Chunk, gradient: Gradient): void {
  const span = chunk.span;
  for (let i = 0; i < chunk.tokens; i++) {
    const erase = at(gradient.pairsErase, i * span);
    const query = at(gradient.pairsQuery, i * span);
    const between = at(chunk.between, i * span);
    for (let j = 0; j <= i; j += 4) {
      const d = job.decay == NONE ? f32x4.splat(1) : v128.load(at(between, j));
      v128.store(at(erase, j), f32x4.neg(f32x4.mul(v128.load(at(erase, j)), d)));
      v128.store(at(query, j), f32x4.mul(v128.load(at(query, j)), d));
    }
    for (let j = i; j < span; j++) store<f32>(at(erase, j), 0);
    for (let j = i + 1; j < span; j++) store<f32>(at(query, j), 0);
  }
}

/** Sum of the state times its gradient in row c, times the decay of the chunk. */
// @ts-ignore: decorator
@inline function rowOverlap(state: usize, gradient: Gradient, c: i32): f32 {
  const row = c * gradient.wide;
  return dotWide(at(state, row), at(gradient.dState, row), gradient.columns);
}

/**
 * dg of scalar decays: token m gets every product that crosses it, that is pairs i >= m > j, reads of the entering state
 * by i >= m, writes to the leaving state by j < m, and the state that passes through.
 */
function gateScalars(job: Job, chunk: Chunk, gradient: Gradient, state: usize): void {
  const n = chunk.tokens;
  const span = chunk.span;
  const stride = chunk.stride;
  const keyRow = gradient.keyRow;
  let through: f32 = 0;
  for (let c = 0; c < job.keyWidth; c++) through += rowOverlap(state, gradient, c);
  through *= load<f32>(at(chunk.into, n - 1));
  const crossing = gradient.enters;
  for (let i = 0; i < n; i++) {
    const erase = dotWide(at(chunk.x, i * stride), at(gradient.dX, i * keyRow), stride);
    store<f32>(at(crossing, i), erase + dotWide(at(chunk.x, (n + i) * stride), at(gradient.dX, (n + i) * keyRow), stride));
  }
  for (let m = 0; m < n; m++) {
    let sum = through;
    for (let i = m; i < n; i++) sum += load<f32>(at(crossing, i));
    store<f32>(at(gradient.dG, m), sum);
    through += dotWide(at(chunk.plainW, m * stride), at(gradient.dW, m * keyRow), stride);
    for (let i = m + 1; i < n; i++) {
      const cell = i * span + m;
      const pair =
        load<f32>(at(gradient.pairsErase, cell)) * load<f32>(at(chunk.m, cell)) +
        load<f32>(at(gradient.pairsQuery, cell)) * load<f32>(at(chunk.n, cell));
      store<f32>(at(crossing, i), load<f32>(at(crossing, i)) + pair);
    }
  }
}

/** Multiplies row i of packed key gradients by `by` (one number a row). */
function scaleKeyRows(to: usize, keyRow: i32, by: usize, n: i32, stride: i32): void {
  for (let i = 0; i < n; i++) {
    const x = v128.load32_splat(at(by, i));
    for (let c = 0; c < stride; c += 4) {
      const cell = at(to, i * keyRow + c);
      v128.store(cell, f32x4.mul(x, v128.load(cell)));
    }
  }
}

/** What the entering and the leaving state give to keys and queries: dX = y Sᵀ, dW = u dSᵀ. */
function stateProducts(job: Job, chunk: Chunk, gradient: Gradient, state: usize): void {
  const n = chunk.tokens;
  const keyWidth = job.keyWidth;
  const width = job.valueWidth;
  const wideBytes = (<usize>gradient.wide) << 2;
  const keyBytes = (<usize>gradient.keyRow) << 2;
  const across = gradient.across;
  transposeBlock(keyWidth, width, state, wideBytes, across, keyBytes);
  gemmBlock(2 * n, keyWidth, width, gradient.y, wideBytes, 4, across, keyBytes, gradient.dX, keyBytes, 0);
  transposeBlock(keyWidth, width, gradient.dState, wideBytes, across, keyBytes);
  gemmBlock(n, keyWidth, width, gradient.u, wideBytes, 4, across, keyBytes, gradient.dW, keyBytes, 0);
  for (let i = 0; i < 3 * n; i++) {
    const row = i < 2 * n ? at(gradient.dX, i * gradient.keyRow) : at(gradient.dW, (i - 2 * n) * gradient.keyRow);
    for (let c = keyWidth; c < chunk.stride; c++) store<f32>(at(row, c), 0);
  }
}

/** Pairs of tokens with one decay between them: block products with A. */
function scalarPairs(job: Job, chunk: Chunk, gradient: Gradient, state: usize, gate: bool): void {
  const n = chunk.tokens;
  const stride = chunk.stride;
  const keyRow = gradient.keyRow;
  const rowBytes = (<usize>stride) << 2;
  const keyBytes = (<usize>keyRow) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  if (job.decay != NONE) scaleKeyRows(gradient.dW, keyRow, chunk.leave, n, stride);
  if (gate) gateScalars(job, chunk, gradient, state);
  decayPairProducts(job, chunk, gradient);
  const dQuery = at(gradient.dX, n * keyRow);
  const query = at(chunk.x, n * stride);
  const keys = chunk.plainW;
  gemmLowerLeft(n, stride, n, gradient.pairsErase, spanBytes, 4, keys, rowBytes, gradient.dX, keyBytes, 1);
  gemmLowerLeft(n, stride, n, gradient.pairsQuery, spanBytes, 4, keys, rowBytes, dQuery, keyBytes, 1);
  gemmUpperLeft(n, stride, n, gradient.pairsErase, 4, spanBytes, chunk.x, rowBytes, gradient.dW, keyBytes, 1);
  gemmUpperLeft(n, stride, n, gradient.pairsQuery, 4, spanBytes, query, rowBytes, gradient.dW, keyBytes, 1);
}

/**
 * All gradients of one prepared chunk. `state` is the state that entered it and `w` holds v − retrieved; `gate` says
 * whether dg is wanted. `gradient.dState` goes from the leaving to the entering state.
 */
export function chunkGradient(job: Job, chunk: Chunk, gradient: Gradient, state: usize, w: usize, dO: usize, dORow: i32, gate: bool): void {
  const n = chunk.tokens;
  const wideBytes = (<usize>gradient.wide) << 2;
  packValues(chunk, gradient, w, dO, dORow, job.valueWidth);
  writtenValues(job, chunk, gradient, w);
  pairProducts(job, chunk, gradient);
  scaleRows(chunk, gradient);
  stateProducts(job, chunk, gradient, state);
  if (job.decay == KEY) {
    if (gate)
      for (let c = 0; c < chunk.stride; c++) {
        const through = c < job.keyWidth ? rowOverlap(state, gradient, c) : 0;
        store<f32>(at(gradient.boundary, c), through * load<f32>(at(chunk.intoRows, (n - 1) * chunk.stride + c)));
      }
    pairGradients(chunk, gradient, gate);
  } else scalarPairs(job, chunk, gradient, state, gate);
  if (job.decay != NONE)
    decayState(job, chunk, gradient.dState, gradient.wide, gradient.columns, gradient.dState);
  const rowBytes = (<usize>chunk.stride) << 2;
  gemmBlock(job.keyWidth, gradient.columns, 2 * n, chunk.x, 4, rowBytes, gradient.y, wideBytes, gradient.dState, wideBytes, 1);
}
