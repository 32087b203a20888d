// Hashing of queries and sorting by bucket: which tokens share a group in each round.
import { gemmBlock, transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** Tokens that are rotated together. */
const TOKENS: i32 = 32;

/** One job. Sorted place n belongs to group n / group. */
@unmanaged
class Job {
  q: usize; rotations: usize; order: usize; groups: usize;
  batch: i32; time: i32; heads: i32; width: i32; half: i32; rounds: i32; group: i32; groupCount: i32;
  rowStride: i32; headStride: i32;
  batchStride: usize;
  rotated: usize; turned: usize; counts: usize; buckets: usize;
}

// args: q rows [B,T,H,K] by strides, rotations [R,K,half]; order, groups [B,H,R,T] (int32): tokens by their group and then
// by position, and the group of each; B, T, H, K, half, R, tokens of a group, groups, strides of batch, token and head.
// One unit is one round of one head in one batch row. Scratch: rotated tokens twice, counts by bucket and group, T buckets.
export function lsh_sort_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(scratch);
  job.q = pointerAt(args, 0);
  job.rotations = pointerAt(args, 1);
  job.order = pointerAt(args, 2);
  job.groups = pointerAt(args, 3);
  job.batch = intAt(args, 4);
  job.time = intAt(args, 5);
  job.heads = intAt(args, 6);
  job.width = intAt(args, 7);
  job.half = intAt(args, 8);
  job.rounds = intAt(args, 9);
  job.group = intAt(args, 10);
  job.groupCount = intAt(args, 11);
  job.batchStride = <usize>intAt(args, 12);
  job.rowStride = intAt(args, 13);
  job.headStride = intAt(args, 14);
  job.rotated = scratch + 128;
  job.turned = job.rotated + (<usize>(TOKENS * job.half) << 2);
  job.counts = job.turned + (<usize>(TOKENS * job.half) << 2);
  job.buckets = job.counts + (<usize>max(2 * job.half + 1, job.groupCount) << 2);
  for (let unit = begin; unit < end; unit++) {
    hash(job, unit);
    sort(job, unit);
  }
}

/** The bucket of every token, arg max of [xR; −xR], and how many tokens come before each bucket. */
function hash(job: Job, unit: i32): void {
  const row = unit / job.rounds;
  const rotation = job.rotations + (<usize>(unit % job.rounds) * job.width * job.half << 2);
  let q = job.q + (<usize>(row / job.heads) * job.batchStride + <usize>(row % job.heads) * job.headStride << 2);
  const qRow = <usize>job.rowStride << 2, wide = <usize>job.half << 2;
  memory.fill(job.counts, 0, <usize>(2 * job.half + 1) << 2);
  for (let t = 0; t < job.time; t += TOKENS) {
    const count = min(TOKENS, job.time - t);
    gemmBlock(count, job.half, job.width, q, qRow, 4, rotation, wide, job.rotated, wide, 0);
    transposeBlock(count, job.half, job.rotated, wide, job.turned, TOKENS << 2);
    q += qRow * TOKENS;
    const buckets = job.buckets + (<usize>t << 2);
    for (let i = 0; i < count; i += 8) largest8(job, job.turned + (<usize>i << 2), buckets + (<usize>i << 2));
    for (let i = 0; i < count; i++) {
      const into = job.counts + (<usize>(load<i32>(buckets + (<usize>i << 2)) + 1) << 2);
      store<i32>(into, load<i32>(into) + 1);
    }
  }
  for (let b = 0; b < 2 * job.half; b++) {
    const count = job.counts + (<usize>b << 2);
    store<i32>(count + 4, load<i32>(count + 4) + load<i32>(count));
  }
}

/** The first of the largest of [y; −y] for eight tokens, a token in each column of y. */
function largest8(job: Job, y: usize, to: usize): void {
  let high0 = v128.load(y), high1 = v128.load(y, 16), low0 = high0, low1 = high1;
  let n = i32x4.splat(0), highAt0 = n, highAt1 = n, lowAt0 = n, lowAt1 = n;
  for (let left = job.half - 1; left > 0; left--) {
    y += TOKENS << 2;
    n = i32x4.add(n, i32x4.splat(1));
    const a = v128.load(y), b = v128.load(y, 16);
    highAt0 = v128.bitselect(n, highAt0, f32x4.gt(a, high0));
    highAt1 = v128.bitselect(n, highAt1, f32x4.gt(b, high1));
    high0 = f32x4.pmax(high0, a);
    high1 = f32x4.pmax(high1, b);
    lowAt0 = v128.bitselect(n, lowAt0, f32x4.lt(a, low0));
    lowAt1 = v128.bitselect(n, lowAt1, f32x4.lt(b, low1));
    low0 = f32x4.pmin(low0, a);
    low1 = f32x4.pmin(low1, b);
  }
  const half = i32x4.splat(job.half);
  v128.store(to, v128.bitselect(i32x4.add(half, lowAt0), highAt0, f32x4.gt(f32x4.neg(low0), high0)));
  v128.store(to, v128.bitselect(i32x4.add(half, lowAt1), highAt1, f32x4.gt(f32x4.neg(low1), high1)), 16);
}

/** Tokens by bucket and then by position stand in line; each group of the line is in the order of positions. */
function sort(job: Job, unit: i32): void {
  const T = job.time;
  const order = job.order + (<usize>unit * T << 2), groups = job.groups + (<usize>unit * T << 2);
  for (let t: usize = 0; t < <usize>T << 2; t += 4) {
    const count = job.counts + (<usize>load<i32>(job.buckets + t) << 2);
    const place = load<i32>(count);
    store<i32>(count, place + 1);
    store<i32>(groups + t, place / job.group);
  }
  memory.fill(job.counts, 0, <usize>job.groupCount << 2);
  for (let t = 0; t < T; t++) {
    const at = load<i32>(groups + (<usize>t << 2));
    const count = job.counts + (<usize>at << 2);
    const place = load<i32>(count);
    store<i32>(count, place + 1);
    store<i32>(order + (<usize>(at * job.group + place) << 2), t);
  }
}
