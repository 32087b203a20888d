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
  const token = i32x4.splat(own);
  const self = f32x4.splat(job.self), hidden = f32x4.splat(HIDDEN);
  // Later tokens are hidden where causal, all of them from what stands for no token.
  const last = i32x4.splat(own < 0 ? -1 : job.causal ? own : i32.MAX_VALUE);
  for (let j = 0; j < wide; j += 4) {
    const other = v128.load(job.tokens + (<usize>j << 2));
    let value = f32x4.splat(0);
    if (job.rounds > 1) {
      const met = meetings(job, job.group + i, j);
      for (let n = 2; n <= job.rounds; n++) {
        const less = f32x4.neg(v128.load32_splat(job.logs + (<usize>n << 2)));
        value = v128.bitselect(less, value, i32x4.eq(met, i32x4.splat(n)));
      }
    }
    value = v128.bitselect(self, value, i32x4.eq(other, token));
    value = v128.bitselect(hidden, value, v128.or(i32x4.lt_s(other, i32x4.splat(0)), i32x4.gt_s(other, last)));
    const to = row + (<usize>j << 2);
    if (wide - j >= 4) v128.store(to, value);
    else v128.store64_lane(to, value, 0);
  }
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
