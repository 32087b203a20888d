// Which pairs of a group and the one before it count, and how much: hidden ones, a token itself, pairs of several rounds.
import { floatAt, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** Hidden pairs: far below every score, finite so that rows of them stay numbers. */
const HIDDEN: f32 = -1e30;

/** One job. */
@unmanaged
class Job {
  order: usize; groups: usize; logs: usize; bias: usize; mask: usize;
  time: i32; rounds: i32; group: i32; groupCount: i32; causal: i32;
  self: f32;
  tokens: usize; places: usize;
}

// args: order, groups [N,R,T], logarithms of 0 … R, bias [N·R·C, group, 2·group], mask [N·R·C, 2·group] int32; T, R,
// tokens of a group, groups C, 1 where causal; what a token itself is given. One unit is one group. Scratch: tokens of two
// groups, and their groups in every round.
export function lsh_pairs_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(scratch);
  job.order = pointerAt(args, 0);
  job.groups = pointerAt(args, 1);
  job.logs = pointerAt(args, 2);
  job.bias = pointerAt(args, 3);
  job.mask = pointerAt(args, 4);
  job.time = intAt(args, 5);
  job.rounds = intAt(args, 6);
  job.group = intAt(args, 7);
  job.groupCount = intAt(args, 8);
  job.causal = intAt(args, 9);
  job.self = floatAt(args, 10);
  job.tokens = scratch + 64;
  // Rows of the places are padded to whole vectors, and their last lanes never used.
  job.places = job.tokens + (<usize>(2 * job.group + 4) << 2);
  for (let unit = begin; unit < end; unit++) {
    open(job, unit);
    const rows = job.bias + (<usize>unit * job.group * 2 * job.group << 2);
    for (let i = 0; i < job.group; i++) fill(job, i, rows + (<usize>i * 2 * job.group << 2));
  }
}

/** The tokens of a group behind those of the one before, −1 where there is none, and where every round puts them. */
function open(job: Job, unit: i32): void {
  const T = job.time, R = job.rounds, wide = 2 * job.group;
  const row = unit / job.groupCount, at = unit % job.groupCount;
  const order = job.order + (<usize>row * T << 2);
  const groups = job.groups + (<usize>(row / R) * R * T << 2);
  const stride = <usize>(wide + 4) << 2;
  for (let j = 0; j < wide; j++) {
    const place = (at - 1) * job.group + j;
    const there = place >= 0 && place < T;
    const token = there ? load<i32>(order + (<usize>place << 2)) : -1;
    store<i32>(job.tokens + (<usize>j << 2), token);
    store<i32>(job.mask + (<usize>(unit * wide + j) << 2), i32(there));
    for (let r = 0; r < R; r++) {
      const group = there ? load<i32>(groups + (<usize>(r * T + token) << 2)) : -3;
      store<i32>(job.places + <usize>r * stride + (<usize>j << 2), group);
    }
  }
}

/** What is added to the scores of query i. */
function fill(job: Job, i: i32, row: usize): void {
  const wide = 2 * job.group;
  const own = load<i32>(job.tokens + (<usize>(job.group + i) << 2));
  // Later tokens are hidden where causal, all of them from what stands for no token.
  const last = own < 0 ? -1 : job.causal ? own : i32.MAX_VALUE;
  let j = 0;
  for (; j + 16 <= wide; j += 16) {
    if (job.rounds > 1) repeats16(job, job.group + i, j, row + (<usize>j << 2));
    else memory.fill(row + (<usize>j << 2), 0, 64);
    const others = job.tokens + (<usize>j << 2), to = row + (<usize>j << 2);
    for (let at: usize = 0; at < 64; at += 16)
      v128.store(to + at, shown(job, v128.load(others + at), v128.load(to + at), own, last));
  }
  for (; j < wide; j += 4) {
    const value = job.rounds > 1 ? lessFor(job, meetings(job, job.group + i, j)) : f32x4.splat(0);
    const to = row + (<usize>j << 2);
    const x = shown(job, v128.load(job.tokens + (<usize>j << 2)), value, own, last);
    if (wide - j >= 4) v128.store(to, x);
    else v128.store64_lane(to, x, 0);
  }
}

/** The values of four tokens, but for the query's own and for those it may not see. */
// @ts-ignore: decorator
@inline function shown(job: Job, other: v128, value: v128, own: i32, last: i32): v128 {
  const kept = v128.bitselect(f32x4.splat(job.self), value, i32x4.eq(other, i32x4.splat(own)));
  const isHidden = v128.or(i32x4.lt_s(other, i32x4.splat(0)), i32x4.gt_s(other, i32x4.splat(last)));
  return v128.bitselect(f32x4.splat(HIDDEN), kept, isHidden);
}

/** Minus the logarithm of how often each of four pairs meets. */
// @ts-ignore: decorator
@inline function lessFor(job: Job, met: v128): v128 {
  let value = f32x4.splat(0);
  for (let n = 2; n <= job.rounds; n++) {
    const less = f32x4.neg(v128.load32_splat(job.logs + (<usize>n << 2)));
    value = v128.bitselect(less, value, i32x4.eq(met, i32x4.splat(n)));
  }
  return value;
}

/** In how many rounds four tokens stand in the group of a query or the one before. */
// @ts-ignore: decorator
@inline function meetings(job: Job, query: i32, j: i32): v128 {
  const stride = <usize>(2 * job.group + 4) << 2;
  let met = i32x4.splat(0);
  let places = job.places;
  for (let r = 0; r < job.rounds; r++) {
    const own = v128.load32_splat(places + (<usize>query << 2));
    const theirs = v128.load(places + (<usize>j << 2));
    const same = v128.or(i32x4.eq(own, theirs), i32x4.eq(i32x4.sub(own, i32x4.splat(1)), theirs));
    met = i32x4.sub(met, same);
    places += stride;
  }
  return met;
}

/** The same logarithms for sixteen tokens: what a query has in common with them is looked up once. */
function repeats16(job: Job, query: i32, j: i32, to: usize): void {
  const stride = <usize>(2 * job.group + 4) << 2;
  let met0 = i32x4.splat(0), met1 = met0, met2 = met0, met3 = met0;
  let own = job.places + (<usize>query << 2), at = job.places + (<usize>j << 2);
  for (let r = job.rounds; r > 0; r--) {
    const here = v128.load32_splat(own);
    const before = i32x4.sub(here, i32x4.splat(1));
    const a = v128.load(at), b = v128.load(at, 16), c = v128.load(at, 32), d = v128.load(at, 48);
    met0 = i32x4.sub(met0, v128.or(i32x4.eq(here, a), i32x4.eq(before, a)));
    met1 = i32x4.sub(met1, v128.or(i32x4.eq(here, b), i32x4.eq(before, b)));
    met2 = i32x4.sub(met2, v128.or(i32x4.eq(here, c), i32x4.eq(before, c)));
    met3 = i32x4.sub(met3, v128.or(i32x4.eq(here, d), i32x4.eq(before, d)));
    own += stride;
    at += stride;
  }
  let x0 = f32x4.splat(0), x1 = x0, x2 = x0, x3 = x0;
  for (let n = 2; n <= job.rounds; n++) {
    const count = i32x4.splat(n);
    const less = f32x4.neg(v128.load32_splat(job.logs + (<usize>n << 2)));
    x0 = v128.bitselect(less, x0, i32x4.eq(met0, count));
    x1 = v128.bitselect(less, x1, i32x4.eq(met1, count));
    x2 = v128.bitselect(less, x2, i32x4.eq(met2, count));
    x3 = v128.bitselect(less, x3, i32x4.eq(met3, count));
  }
  v128.store(to, x0);
  v128.store(to, x1, 16);
  v128.store(to, x2, 32);
  v128.store(to, x3, 48);
}
