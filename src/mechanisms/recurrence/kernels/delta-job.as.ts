// What every kernel of the delta rule is told, and how it reaches sequences, rows, panels and kept states.
import { exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";

// Bits of `flags`.
export const INITIAL: i32 = 1;
export const FINAL: i32 = 2;
export const PACKED: i32 = 4;
export const KEPT: i32 = 8;
/** The correction reads the state as it was before the token's decay. */
export const UNDECAYED: i32 = 16;
/** The output reads the state as it was before the token's decay and write. */
export const READ_FIRST: i32 = 32;
/** One gradient takes what the erase key and the write key get. */
export const ONE_KEY: i32 = 64;
export const GATE_GRADIENT: i32 = 128;
export const INITIAL_GRADIENT: i32 = 256;

// Values of `decay`; a decay per head arrives as SCALAR with a row stride of 0.
export const NONE: i32 = 0;
export const KEY: i32 = 3;

/** The words that all kernels of the family share, copied to scratch memory. */
// @ts-ignore: decorator
@unmanaged export class Job {
  q: usize;
  erase: usize;
  write: usize;
  v: usize;
  beta: usize;
  g: usize;
  initial: usize;
  cuSeqlens: usize;
  sequences: i32;
  time: i32;
  heads: i32;
  valueHeads: i32;
  keyWidth: i32;
  valueWidth: i32;
  decay: i32;
  flags: i32;
  columns: i32;
  chunk: i32;
  segment: i32;
  qRow: i32;
  eraseRow: i32;
  writeRow: i32;
  vRow: i32;
  betaRow: i32;
  gRow: i32;
}

/** Bytes at the head of the scratch memory that the job takes. */
export const JOB_BYTES: i32 = 128;

/** Copies the shared words of an argument block with `buffers` operands to `scratch`. */
export function readJob(scratch: usize, args: usize, buffers: i32): Job {
  memory.copy(scratch, args, 32);
  memory.copy(scratch + 32, args + ((<usize>buffers) << 2), 68);
  return changetype<Job>(scratch);
}

/** Index of the first word behind the shared ones. */
// @ts-ignore: decorator
@inline export function ownWord(buffers: i32): i32 {
  return buffers + 17;
}

/** True where one key erases and writes. */
// @ts-ignore: decorator
@inline export function oneKey(job: Job): bool {
  return job.write == job.erase && job.writeRow == job.eraseRow;
}

/** Byte address of element i of floats at `base`. */
// @ts-ignore: decorator
@inline export function at(base: usize, i: i32): usize {
  return base + ((<usize>i) << 2);
}

/** Byte address of token row `row` with `stride` floats between rows, plus `first` floats. */
// @ts-ignore: decorator
@inline export function rowAt(base: usize, row: i32, stride: i32, first: i32): usize {
  return base + ((<usize>row) * (<usize>stride) << 2) + ((<usize>first) << 2);
}

// @ts-ignore: decorator
@inline export function padded(n: i32, to: i32): i32 {
  return ((n + to - 1) / to) * to;
}

/**
 * How a decay is applied: a slow one as S + expm1(g) S, which rounds the change and not the state, a fast one as
 * exp(g) S, which does not cancel. The sign tells them apart: expm1 is stored negative (−0 for g = 0), exp is not.
 */
// @ts-ignore: decorator
@inline export function gate4(g: v128): v128 {
  const slow = v128.or(expm14(g), i32x4.splat(0x80000000));
  return v128.bitselect(slow, exp4(g), f32x4.ge(g, f32x4.splat(-0.25)));
}

// @ts-ignore: decorator
@inline export function gate1(g: f32): f32 {
  return f32x4.extract_lane(gate4(f32x4.splat(g)), 0);
}

/** All ones where a gate is slow, zeros where it is fast: what of the state stays as it is. */
// @ts-ignore: decorator
@inline export function slowMask(gate: v128): v128 {
  return i32x4.shr_s(gate, 31);
}

/** Copies n floats. */
// @ts-ignore: decorator
@inline export function copyFloats(to: usize, from: usize, n: i32): void {
  let c = 0;
  for (; c + 4 <= n; c += 4) v128.store(at(to, c), v128.load(at(from, c)));
  for (; c < n; c++) store<f32>(at(to, c), load<f32>(at(from, c)));
}

/** Reads one word of every line of n rows, so that many lines are under way at once; returns something of them. */
export function touchRows(from: usize, fromRow: i32, n: i32, width: i32): i32 {
  let seen: i32 = 0;
  for (let i = 0; i < n; i++) {
    const row = rowAt(from, i, fromRow, 0);
    for (let c = 0; c < width; c += 16) seen |= load<i32>(at(row, c));
  }
  return seen;
}

/** Packs n token rows of `width` floats into rows of `stride` floats, the rest of each row zeros. */
export function packRows(to: usize, stride: i32, from: usize, fromRow: i32, n: i32, width: i32): void {
  store<i32>(to, touchRows(from, fromRow, n, width));
  for (let i = 0; i < n; i++) {
    copyFloats(to, from, width);
    for (let c = width; c < stride; c++) store<f32>(at(to, c), 0);
    to = at(to, stride);
    from = at(from, fromRow);
  }
}

/** Writes packed rows back to token rows. */
export function unpackRows(to: usize, toRow: i32, from: usize, stride: i32, n: i32, width: i32): void {
  for (let i = 0; i < n; i++) {
    copyFloats(to, from, width);
    to = at(to, toRow);
    from = at(from, stride);
  }
}

/** Adds packed rows to token rows. */
export function addRows(to: usize, toRow: i32, from: usize, stride: i32, n: i32, width: i32): void {
  for (let i = 0; i < n; i++) {
    let c = 0;
    for (; c + 4 <= width; c += 4) v128.store(at(to, c), f32x4.add(v128.load(at(to, c)), v128.load(at(from, c))));
    for (; c < width; c++) store<f32>(at(to, c), load<f32>(at(to, c)) + load<f32>(at(from, c)));
    to = at(to, toRow);
    from = at(from, stride);
  }
}

/** Packs one float of n token rows. */
export function packColumn(to: usize, from: usize, fromRow: i32, n: i32): void {
  for (let i = 0; i < n; i++) store<f32>(at(to, i), load<f32>(rowAt(from, i, fromRow, 0)));
}

/** The four lanes added, halves first. */
// @ts-ignore: decorator
@inline export function addLanes(x: v128): f32 {
  const left = f32x4.extract_lane(x, 0) + f32x4.extract_lane(x, 1);
  return left + (f32x4.extract_lane(x, 2) + f32x4.extract_lane(x, 3));
}

/** Sum of products of n floats, n a multiple of 4. */
export function dot4(a: usize, b: usize, n: i32): f32 {
  let sum = f32x4.splat(0);
  for (let c = 0; c < n; c += 4) sum = fma(v128.load(at(a, c)), v128.load(at(b, c)), sum);
  return addLanes(sum);
}

/** The same in sixteen chains, four times as fast for long rows. */
export function dotWide(a: usize, b: usize, n: i32): f32 {
  let s0 = f32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
  let c = 0;
  for (; c + 16 <= n; c += 16) {
    const x = at(a, c), y = at(b, c);
    s0 = fma(v128.load(x), v128.load(y), s0);
    s1 = fma(v128.load(x, 16), v128.load(y, 16), s1);
    s2 = fma(v128.load(x, 32), v128.load(y, 32), s2);
    s3 = fma(v128.load(x, 48), v128.load(y, 48), s3);
  }
  for (; c < n; c += 4) s0 = fma(v128.load(at(a, c)), v128.load(at(b, c)), s0);
  return addLanes(f32x4.add(f32x4.add(s0, s1), f32x4.add(s2, s3)));
}

/** First of 16 columns of a row-major matrix into a panel of rows of 16 floats, missing columns zero; null is zeros. */
export function loadPanel(panel: usize, matrix: usize, rows: i32, stride: i32, width: i32): void {
  for (let r = 0; r < rows; r++) {
    const to = panel + ((<usize>r) << 6);
    if (matrix == 0 || width < 16) memory.fill(to, 0, 64);
    if (matrix != 0) copyFloats(to, rowAt(matrix, r, stride, 0), width);
  }
}

/** The inverse of loadPanel. */
export function storePanel(matrix: usize, stride: i32, panel: usize, rows: i32, width: i32): void {
  for (let r = 0; r < rows; r++) copyFloats(rowAt(matrix, r, stride, 0), panel + ((<usize>r) << 6), width);
}

/** First row of sequence n; that of n + 1 is its end. Rows count over batch and time. */
// @ts-ignore: decorator
@inline export function sequenceRow(flags: i32, cuSeqlens: usize, time: i32, n: i32): i32 {
  return flags & PACKED ? load<i32>(at(cuSeqlens, n)) : n * time;
}

/**
 * Slot of the state kept where segment 1 of sequence n begins; later segments follow. A packed sequence may use the
 * slots from floor(begin / segment) on: it needs floor((length - 1) / segment) of them, so none is shared.
 */
// @ts-ignore: decorator
@inline export function keptSlot(flags: i32, time: i32, segment: i32, n: i32, begin: i32): i32 {
  if (flags & PACKED) return begin / segment;
  return time > 0 ? n * ((time - 1) / segment) : 0;
}
