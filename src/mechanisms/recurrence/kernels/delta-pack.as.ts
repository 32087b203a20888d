// A tile of tokens as the sweeps over pairs read it: where the two erase keys, queries and written keys of a pair lie, and
// how the second token sees the first as scalars. Rows are read where they are; only decays per channel need copies.
//
// A scalar decay is not applied to the state pair by pair. What is kept is the state divided by the decay since it was
// last applied; that is applied once it has passed exp(LOWEST), and wherever a tile or a segment of any length may end, so
// that the bits of a prefix do not depend on how long the sequence is. Until then it is in the scalars and written values
// are divided by it. Decays per channel are in the rows.
import { loadLanes } from "../../../device/wasm/kernels/lanes.as";
import { exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { addLanes, at, gate1, Job, KEY, NONE, rowAt, touchRows } from "./delta-job.as";
import { Work } from "./delta-work.as";

/**
 * Bytes of a pair's slot: coefficients, how the state decays behind it, and where the rows lie that it reads and writes.
 * Slot 0 is the pair before the tile.
 */
export const PAIR: usize = 96;
/** A sum of gates below this is applied to the state, long before its reciprocal overflows. */
const LOWEST: f64 = -16;
/** exp of this is 0, and unlike -Infinity it can be taken away. */
const NOTHING: f64 = -1000;
/** How the state decays behind a pair. */
export const SLOW: i32 = 1;
export const FAST: i32 = 2;

/** A slot; the sweep reads it by offsets. */
// @ts-ignore: decorator
@unmanaged class Pair {
  b1: f32; n1: f32; b2: f32; n2: f32; n21: f32;
  m1: f32; c11: f32; m2: f32; c21: f32; c22: f32;
  f1: f32; f2: f32;
  gate: f32; kind: i32;
  e1: usize; e2: usize; x1: usize; x2: usize; w1: usize; w2: usize; gates: usize;
}

/** Products of queries and erase keys with written keys: q1·k1, q2·k1, q2·k2 and k2·k1. */
// @ts-ignore: decorator
@unmanaged class Products {
  c11: f32; d21: f32; c22: f32; c21: f32;
}

// @ts-ignore: decorator
@inline function four(p: usize, live: i32): v128 {
  return live >= 4 ? v128.load(p) : loadLanes(p, live);
}

function multiply(pair: Pair, products: Products, width: i32): void {
  let e2 = pair.e2, x1 = pair.x1, x2 = pair.x2, w1 = pair.w1, w2 = pair.w2;
  let c11 = f32x4.splat(0), d21 = c11, c22 = c11, c21 = c11;
  for (let live = width; live > 0; live -= 4) {
    const before = four(w1, live), first = four(x1, live), second = four(x2, live);
    c11 = fma(first, before, c11);
    d21 = fma(second, before, d21);
    c22 = fma(second, four(w2, live), c22);
    c21 = fma(four(e2, live), before, c21);
    e2 += 16;
    x1 += 16;
    x2 += 16;
    w1 += 16;
    w2 += 16;
  }
  products.c11 = addLanes(c11);
  products.d21 = addLanes(d21);
  products.c22 = addLanes(c22);
  products.c21 = addLanes(c21);
}

/** The same with decays per channel `g1` and `g2`, which go into copies of the rows from `rows` and `writes` on. */
function decayRows(
  pair: Pair, products: Products, g1: usize, g2: usize, rows: usize, writes: usize, stride: i32, width: i32,
): void {
  let c11 = f32x4.splat(0), d21 = c11, c22 = c11, c21 = c11;
  const row = (<usize>stride) << 2;
  for (let c = 0; c < width; c += 4) {
    const live = width - c;
    const gate1 = four(at(g1, c), live), gate2 = four(at(g2, c), live);
    const a1 = exp4(gate1), a2 = exp4(gate2), sum = f32x4.add(gate1, gate2);
    const both = f32x4.mul(a1, a2);
    const slow = v128.or(expm14(sum), i32x4.splat(0x80000000));
    const e2 = four(at(pair.e2, c), live), x1 = four(at(pair.x1, c), live), x2 = four(at(pair.x2, c), live);
    const plain = four(at(pair.w1, c), live), w2 = four(at(pair.w2, c), live);
    const w1 = f32x4.mul(a2, plain);
    const written = at(writes, c);
    v128.store(written, w1);
    v128.store(written + row, w2);
    v128.store(written + 2 * row, v128.bitselect(slow, both, f32x4.ge(sum, f32x4.splat(-0.25))));
    c11 = fma(x1, plain, c11);
    d21 = fma(x2, w1, d21);
    c22 = fma(x2, w2, c22);
    c21 = fma(e2, w1, c21);
    const read = at(rows, c);
    v128.store(read, f32x4.mul(a1, four(at(pair.e1, c), live)));
    v128.store(read + row, f32x4.mul(both, e2));
    v128.store(read + 2 * row, f32x4.mul(a1, x1));
    v128.store(read + 3 * row, f32x4.mul(both, x2));
  }
  products.c11 = addLanes(c11);
  products.d21 = addLanes(d21);
  products.c22 = addLanes(c22);
  products.c21 = addLanes(c21);
  pair.e1 = rows;
  pair.e2 = rows + row;
  pair.x1 = rows + 2 * row;
  pair.x2 = rows + 3 * row;
  pair.w1 = writes;
  pair.w2 = writes + row;
  pair.gates = writes + 2 * row;
}

/**
 * The coefficients of a pair: reads decay by `first` and `both`, the first token by `second` until the second reads it,
 * and the values are written times f1 and f2.
 */
function coefficients(
  pair: Pair, by: Products, b1: f32, b2: f32, scale: f32, first: f32, both: f32, second: f32, f1: f32, f2: f32,
): void {
  pair.b1 = b1;
  pair.n1 = -b1 * first;
  pair.b2 = b2;
  pair.n2 = -b2 * both;
  pair.n21 = -b2 * second * by.c21;
  pair.m1 = scale * first;
  pair.c11 = scale * by.c11;
  pair.m2 = scale * both;
  pair.c21 = scale * second * by.d21;
  pair.c22 = scale * by.c22;
  pair.f1 = f1;
  pair.f2 = f2;
  pair.gate = 0;
  pair.kind = 0;
}

/** exp of the lanes of `sums`, which with those of `rest` are sums of gates: what is lost to rounding is first order. */
// @ts-ignore: decorator
@inline function expSums(sums: v128, rest: v128): v128 {
  const power = exp4(sums);
  return fma(power, rest, power);
}

/** The same under a scalar decay, `past` the sum of gates not yet applied; returns that sum behind the pair. */
function decayedCoefficients(
  pair: Pair, by: Products, b1: f32, b2: f32, scale: f32, past: f64, g1: f32, g2: f32, last: bool,
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
    pair, by, b1, b2, scale, f32x4.extract_lane(down, 0), f32x4.extract_lane(down, 1), second,
    f32x4.extract_lane(up, 0), f32x4.extract_lane(up, 1),
  );
  if (!apply) return two;
  const gate = gate1(near2);
  pair.gate = gate;
  pair.kind = reinterpret<i32>(gate) < 0 ? SLOW : FAST;
  return 0;
}

/** Points a pair at its rows, the first of which is token row `row`; a second token that is not there has zeros. */
function locate(pair: Pair, job: Job, work: Work, row: i32, first: i32, second: bool): void {
  pair.e1 = rowAt(job.erase, row, job.eraseRow, first);
  pair.w1 = rowAt(job.write, row, job.writeRow, first);
  pair.x1 = rowAt(job.q, row, job.qRow, first);
  pair.e2 = second ? at(pair.e1, job.eraseRow) : work.nothing;
  pair.w2 = second ? at(pair.w1, job.writeRow) : work.nothing;
  pair.x2 = second ? at(pair.x1, job.qRow) : work.nothing;
}

/** Packs the next tile of a head behind slot 0, `begin` tokens into its sequence; a segment may end at any multiple of `step`. */
export function packPairs(job: Job, work: Work, row: i32, head: i32, begin: i32, step: i32): void {
  const n = work.tokens;
  const width = job.keyWidth;
  const bytes = (<usize>work.stride) << 4;
  const by = changetype<Products>(work.spare);
  const first = (head / (job.valueHeads / job.heads)) * width;
  const keyed = job.decay == KEY;
  let seen = touchRows(rowAt(job.erase, row, job.eraseRow, first), job.eraseRow, n, width);
  seen |= touchRows(rowAt(job.q, row, job.qRow, first), job.qRow, n, width);
  if (keyed) seen |= touchRows(rowAt(job.g, row, job.gRow, head * width), job.gRow, n, width);
  store<i32>(work.spare, seen);
  let past: f64 = 0;
  let slot = work.pairs;
  for (let t = 0; t < n; t += 2) {
    const second = t + 1 < n;
    slot += PAIR;
    const pair = changetype<Pair>(slot);
    locate(pair, job, work, row + t, first, second);
    const b1 = load<f32>(rowAt(job.beta, row + t, job.betaRow, head));
    const b2: f32 = second ? load<f32>(rowAt(job.beta, row + t + 1, job.betaRow, head)) : 0;
    if (keyed) {
      const g1 = rowAt(job.g, row + t, job.gRow, head * width);
      const place = (<usize>(t >> 1)) * bytes;
      decayRows(
        pair, by, g1, second ? at(g1, job.gRow) : work.nothing, work.rows + place, work.writes + place, work.stride, width,
      );
    } else multiply(pair, by, width);
    if (keyed || job.decay == NONE) {
      coefficients(pair, by, b1, b2, work.scale, 1, 1, 1, 1, 1);
    } else {
      const g1 = load<f32>(rowAt(job.g, row + t, job.gRow, head));
      const g2: f32 = second ? load<f32>(rowAt(job.g, row + t + 1, job.gRow, head)) : 0;
      past = decayedCoefficients(pair, by, b1, b2, work.scale, past, g1, g2, t + 2 >= n || (begin + t + 2) % step == 0);
    }
  }
}

/** Slot `to` as if a pair had written nothing: rows of zeros, gates that change nothing. */
export function packNothing(work: Work, to: usize): void {
  memory.fill(to, 0, PAIR);
  const pair = changetype<Pair>(to);
  pair.w1 = pair.w2 = work.nothing;
  pair.gates = at(work.nothing, work.stride);
}

/** The last pair of the tile to slot `to` and, where the tile has copies of its rows, these behind it. */
export function keepPair(work: Work, to: usize, keyed: bool): void {
  const index = <usize>((work.tokens + 1) >> 1);
  memory.copy(to, work.pairs + index * PAIR, PAIR);
  if (!keyed) return;
  const row = (<usize>work.stride) << 2;
  const pair = changetype<Pair>(to);
  memory.copy(to + PAIR, pair.w1, 3 * row);
  pair.w1 = to + PAIR;
  pair.w2 = pair.w1 + row;
  pair.gates = pair.w2 + row;
}
