// A tile of tokens as the sweeps over pairs read it: for every key channel of a pair the two erase keys and the two
// queries side by side, and how the second token sees the first as scalars.
//
// A scalar decay is not applied to the state pair by pair. What is kept is the state divided by the decay since it was
// last applied; that is applied once it has passed exp(LOWEST), and wherever a tile or a segment of any length may end, so
// that the bits of a prefix do not depend on how long the sequence is. Until then it is in the scalars and written values
// are divided by it. Decays per channel are in the rows.
import { loadLanes } from "../../../device/wasm/kernels/lanes.as";
import { exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { addLanes, at, gate1, Job, KEY, NONE, oneKey, rowAt, touchRows } from "./delta-job.as";
import { Work } from "./delta-work.as";

/** Bytes of a pair's coefficients. Slot 0 of these and of the rows that are written is the pair before the tile. */
export const COEFFICIENTS: usize = 64;
/** A sum of gates below this is applied to the state, long before its reciprocal overflows. */
const LOWEST: f64 = -16;
/** exp of this is 0, and unlike -Infinity it can be taken away. */
const NOTHING: f64 = -1000;
/** How the state decays behind a pair. */
export const SLOW: i32 = 1;
export const FAST: i32 = 2;

/** Where the rows of a pair lie; a second token that is not there has zeros. */
// @ts-ignore: decorator
@unmanaged class Pair {
  e1: usize; e2: usize; w1: usize; w2: usize; x1: usize; x2: usize; g1: usize; g2: usize;
  /** Products of queries and erase keys with written keys: q1·k1, q2·k1, q2·k2 and k2·k1. */
  c11: f32; d21: f32; c22: f32; c21: f32;
}

/** Bytes of a Pair, rounded up. */
export const PAIR_BYTES: usize = 64;

// @ts-ignore: decorator
@inline function four(p: usize, live: i32): v128 {
  return live >= 4 ? v128.load(p) : loadLanes(p, live);
}

/** Four rows of four to memory, column after column. */
// @ts-ignore: decorator
@inline function storeColumns(to: usize, a: v128, b: v128, c: v128, d: v128): void {
  const ab0 = i32x4.shuffle(a, b, 0, 4, 1, 5), ab1 = i32x4.shuffle(a, b, 2, 6, 3, 7);
  const cd0 = i32x4.shuffle(c, d, 0, 4, 1, 5), cd1 = i32x4.shuffle(c, d, 2, 6, 3, 7);
  v128.store(to, i64x2.shuffle(ab0, cd0, 0, 2));
  v128.store(to, i64x2.shuffle(ab0, cd0, 1, 3), 16);
  v128.store(to, i64x2.shuffle(ab1, cd1, 0, 2), 32);
  v128.store(to, i64x2.shuffle(ab1, cd1, 1, 3), 48);
}

function packPlain(pair: Pair, rows: usize, writes: usize, width: i32): void {
  let c11 = f32x4.splat(0), d21 = c11, c22 = c11, c21 = c11;
  for (let c = 0; c < width; c += 4, rows += 64) {
    const live = width - c;
    const e1 = four(at(pair.e1, c), live), e2 = four(at(pair.e2, c), live);
    const x1 = four(at(pair.x1, c), live), x2 = four(at(pair.x2, c), live);
    storeColumns(rows, e1, e2, x1, x2);
    let w1 = e1, w2 = e2;
    if (writes) {
      w1 = four(at(pair.w1, c), live);
      w2 = four(at(pair.w2, c), live);
      storeColumns(writes, w1, w2, w1, w2);
      writes += 64;
    }
    c11 = fma(x1, w1, c11);
    d21 = fma(x2, w1, d21);
    c22 = fma(x2, w2, c22);
    c21 = fma(e2, w1, c21);
  }
  pair.c11 = addLanes(c11);
  pair.d21 = addLanes(d21);
  pair.c22 = addLanes(c22);
  pair.c21 = addLanes(c21);
}

function packKeyed(pair: Pair, rows: usize, writes: usize, width: i32): void {
  let c11 = f32x4.splat(0), d21 = c11, c22 = c11, c21 = c11;
  for (let c = 0; c < width; c += 4, rows += 64, writes += 64) {
    const live = width - c;
    const g1 = four(at(pair.g1, c), live), g2 = four(at(pair.g2, c), live);
    const a1 = exp4(g1), a2 = exp4(g2), sum = f32x4.add(g1, g2);
    const both = f32x4.mul(a1, a2);
    const slow = v128.or(expm14(sum), i32x4.splat(0x80000000));
    const gate = v128.bitselect(slow, both, f32x4.ge(sum, f32x4.splat(-0.25)));
    const e2 = four(at(pair.e2, c), live), x1 = four(at(pair.x1, c), live), x2 = four(at(pair.x2, c), live);
    const plain = four(at(pair.w1, c), live), w2 = four(at(pair.w2, c), live);
    const w1 = f32x4.mul(a2, plain);
    storeColumns(writes, w1, w2, gate, gate);
    c11 = fma(x1, plain, c11);
    d21 = fma(x2, w1, d21);
    c22 = fma(x2, w2, c22);
    c21 = fma(e2, w1, c21);
    const e1 = f32x4.mul(a1, four(at(pair.e1, c), live));
    storeColumns(rows, e1, f32x4.mul(both, e2), f32x4.mul(a1, x1), f32x4.mul(both, x2));
  }
  pair.c11 = addLanes(c11);
  pair.d21 = addLanes(d21);
  pair.c22 = addLanes(c22);
  pair.c21 = addLanes(c21);
}

/**
 * The coefficients of a pair: reads decay by `first` and `both`, the first token by `second` until the second reads it,
 * and the values are written times f1 and f2.
 */
function coefficients(
  c: usize, pair: Pair, b1: f32, b2: f32, scale: f32, first: f32, both: f32, second: f32, f1: f32, f2: f32,
): void {
  store<f32>(c, b1);
  store<f32>(c, -b1 * first, 4);
  store<f32>(c, b2, 8);
  store<f32>(c, -b2 * both, 12);
  store<f32>(c, -b2 * second * pair.c21, 16);
  store<f32>(c, scale * first, 20);
  store<f32>(c, scale * pair.c11, 24);
  store<f32>(c, scale * both, 28);
  store<f32>(c, scale * second * pair.d21, 32);
  store<f32>(c, scale * pair.c22, 36);
  store<f32>(c, f1, 40);
  store<f32>(c, f2, 44);
  store<f32>(c, 0, 48);
  store<i32>(c, 0, 52);
}

/** exp of the lanes of `sums`, which with those of `rest` are sums of gates: what is lost to rounding is first order. */
// @ts-ignore: decorator
@inline function expSums(sums: v128, rest: v128): v128 {
  const power = exp4(sums);
  return fma(power, rest, power);
}

/** The same under a scalar decay, `past` the sum of gates not yet applied; returns that sum behind the pair. */
function decayedCoefficients(
  c: usize, pair: Pair, b1: f32, b2: f32, scale: f32, past: f64, g1: f32, g2: f32, last: bool,
): f64 {
  const one = max(past + <f64>g1, NOTHING), two = max(one + <f64>g2, NOTHING);
  const apply = last || !(two > LOWEST);
  const near1 = <f32>one, near2 = <f32>two;
  const sums = f32x4.replace_lane(f32x4.replace_lane(f32x4.splat(near1), 1, near2), 2, g2);
  const rest = f32x4.replace_lane(f32x4.replace_lane(f32x4.splat(0), 0, <f32>(one - near1)), 1, <f32>(two - near2));
  const down = expSums(sums, rest);
  const second = f32x4.extract_lane(down, 2);
  const up = apply
    ? f32x4.replace_lane(f32x4.splat(1), 0, second)
    : expSums(f32x4.neg(sums), f32x4.neg(rest));
  coefficients(
    c, pair, b1, b2, scale, f32x4.extract_lane(down, 0), f32x4.extract_lane(down, 1), second,
    f32x4.extract_lane(up, 0), f32x4.extract_lane(up, 1),
  );
  if (!apply) return two;
  const gate = gate1(near2);
  store<f32>(c, gate, 48);
  store<i32>(c, reinterpret<i32>(gate) < 0 ? SLOW : FAST, 52);
  return 0;
}

/** Points a pair at its rows, the first of which is token row `row`. */
function locate(pair: Pair, job: Job, work: Work, row: i32, head: i32, second: bool): void {
  const first = (head / (job.valueHeads / job.heads)) * job.keyWidth;
  pair.e1 = rowAt(job.erase, row, job.eraseRow, first);
  pair.w1 = rowAt(job.write, row, job.writeRow, first);
  pair.x1 = rowAt(job.q, row, job.qRow, first);
  pair.g1 = rowAt(job.g, row, job.gRow, head * job.keyWidth);
  pair.e2 = second ? at(pair.e1, job.eraseRow) : work.nothing;
  pair.w2 = second ? at(pair.w1, job.writeRow) : work.nothing;
  pair.x2 = second ? at(pair.x1, job.qRow) : work.nothing;
  pair.g2 = second ? at(pair.g1, job.gRow) : work.nothing;
}

/** Packs the next tile of a head behind slot 0, `begin` tokens into its sequence; a segment may end at any multiple of `step`. */
export function packPairs(job: Job, work: Work, row: i32, head: i32, begin: i32, step: i32): void {
  const n = work.tokens;
  const width = job.keyWidth;
  const bytes = (<usize>work.stride) << 4;
  const pair = changetype<Pair>(work.pair);
  const first = (head / (job.valueHeads / job.heads)) * width;
  let seen = touchRows(rowAt(job.erase, row, job.eraseRow, first), job.eraseRow, n, width);
  seen |= touchRows(rowAt(job.q, row, job.qRow, first), job.qRow, n, width);
  if (job.decay == KEY) seen |= touchRows(rowAt(job.g, row, job.gRow, head * width), job.gRow, n, width);
  store<i32>(work.pair, seen);
  const keyed = job.decay == KEY;
  let past: f64 = 0;
  let c = work.coefficients;
  for (let t = 0; t < n; t += 2) {
    const second = t + 1 < n;
    const place = (<usize>((t >> 1) + 1)) * bytes;
    locate(pair, job, work, row + t, head, second);
    if (keyed) packKeyed(pair, work.rows + place, work.writes + place, width);
    else packPlain(pair, work.rows + place, oneKey(job) ? 0 : work.writes + place, width);
    const b1 = load<f32>(rowAt(job.beta, row + t, job.betaRow, head));
    const b2: f32 = second ? load<f32>(rowAt(job.beta, row + t + 1, job.betaRow, head)) : 0;
    c += COEFFICIENTS;
    if (keyed || job.decay == NONE) {
      coefficients(c, pair, b1, b2, work.scale, 1, 1, 1, 1, 1);
    } else {
      const g1 = load<f32>(rowAt(job.g, row + t, job.gRow, head));
      const g2: f32 = second ? load<f32>(rowAt(job.g, row + t + 1, job.gRow, head)) : 0;
      past = decayedCoefficients(c, pair, b1, b2, work.scale, past, g1, g2, t + 2 >= n || (begin + t + 2) % step == 0);
    }
  }
}
