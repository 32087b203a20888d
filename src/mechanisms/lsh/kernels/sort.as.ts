// Hashing of queries and sorting by bucket: which rows stand next to each other in each round.
import { fma, intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";

/** One job. Sorted slot n of a unit belongs to group n / group; a unit has `slots` of them, whole groups. */
@unmanaged
class Job {
  q: usize; rotations: usize; order: usize; groups: usize; ids: usize; inverse: usize;
  batch: i32; time: i32; heads: i32; width: i32; half: i32; rounds: i32; group: i32; slots: i32;
  rowStride: i32; headStride: i32;
  batchStride: usize;
  rotated: usize; counts: usize; buckets: usize;
}

// args: q rows [B,T,H,K] by strides, rotations [R,K,half]; order, groups [B,H,R,T], ids [B,H,R,slots], inverse [R,B,T,H]
// (int32); B, T, H, K, half, R, tokens of a group, slots, strides of batch, token and head. One unit is one round of one
// head in one batch row. Scratch: half floats padded to 4, 2·half counts, T buckets.
export function lsh_sort_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(scratch);
  job.q = pointerAt(args, 0);
  job.rotations = pointerAt(args, 1);
  job.order = pointerAt(args, 2);
  job.groups = pointerAt(args, 3);
  job.ids = pointerAt(args, 4);
  job.inverse = pointerAt(args, 5);
  job.batch = intAt(args, 6);
  job.time = intAt(args, 7);
  job.heads = intAt(args, 8);
  job.width = intAt(args, 9);
  job.half = intAt(args, 10);
  job.rounds = intAt(args, 11);
  job.group = intAt(args, 12);
  job.slots = intAt(args, 13);
  job.batchStride = <usize>intAt(args, 14);
  job.rowStride = intAt(args, 15);
  job.headStride = intAt(args, 16);
  job.rotated = scratch + 128;
  job.counts = job.rotated + (<usize>((job.half + 3) & -4) << 2);
  job.buckets = job.counts + (<usize>(2 * job.half + 1) << 2);
  for (let unit = begin; unit < end; unit++) {
    hash(job, unit);
    sort(job, unit);
  }
}

/** The bucket of every token, arg max of [xR; −xR], and how many tokens come before each bucket. */
function hash(job: Job, unit: i32): void {
  const row = unit / job.rounds;
  const rotation = job.rotations + (<usize>(unit % job.rounds) * job.width * job.half << 2);
  const q = job.q + (<usize>(row / job.heads) * job.batchStride + <usize>(row % job.heads) * job.headStride << 2);
  memory.fill(job.counts, 0, <usize>(2 * job.half + 1) << 2);
  for (let t = 0; t < job.time; t++) {
    rotate(job, q + (<usize>t * job.rowStride << 2), rotation);
    const bucket = largest(job);
    store<i32>(job.buckets + (<usize>t << 2), bucket);
    const count = job.counts + (<usize>(bucket + 1) << 2);
    store<i32>(count, load<i32>(count) + 1);
  }
  for (let b = 0; b < 2 * job.half; b++) {
    const count = job.counts + (<usize>b << 2);
    store<i32>(count + 4, load<i32>(count + 4) + load<i32>(count));
  }
}

/** x R, four columns at a time; every sum runs over K in ascending order. */
function rotate(job: Job, x: usize, rotation: usize): void {
  const half = job.half;
  const step = <usize>half << 2;
  let n = 0;
  for (; n + 4 <= half; n += 4) {
    let sum = f32x4.splat(0);
    let at = rotation + (<usize>n << 2);
    for (let i = 0; i < job.width; i++) {
      sum = fma(v128.load32_splat(x + (<usize>i << 2)), v128.load(at), sum);
      at += step;
    }
    v128.store(job.rotated + (<usize>n << 2), sum);
  }
  for (; n < half; n++) {
    let sum = f32x4.splat(0);
    let at = rotation + (<usize>n << 2);
    for (let i = 0; i < job.width; i++) {
      sum = fma(v128.load32_splat(x + (<usize>i << 2)), v128.load32_splat(at), sum);
      at += step;
    }
    store<f32>(job.rotated + (<usize>n << 2), f32x4.extract_lane(sum, 0));
  }
}

/** The first of the largest of [y; −y]. */
function largest(job: Job): i32 {
  const half = job.half;
  let high = load<f32>(job.rotated), low = high;
  let highAt = 0, lowAt = 0;
  for (let n = 1; n < half; n++) {
    const value = load<f32>(job.rotated + (<usize>n << 2));
    if (value > high) {
      high = value;
      highAt = n;
    }
    if (value < low) {
      low = value;
      lowAt = n;
    }
  }
  return -low > high ? half + lowAt : highAt;
}

/** Tokens by bucket, then by position; slots behind the last token name its row. */
function sort(job: Job, unit: i32): void {
  const T = job.time, H = job.heads;
  const row = unit / job.rounds, round = unit % job.rounds;
  const b = row / H, h = row % H;
  const order = job.order + (<usize>unit * T << 2), groups = job.groups + (<usize>unit * T << 2);
  const ids = job.ids + (<usize>unit * job.slots << 2);
  const inverse = job.inverse + (<usize>round * job.batch * T * H << 2);
  for (let t = 0; t < T; t++) {
    const count = job.counts + (<usize>load<i32>(job.buckets + (<usize>t << 2)) << 2);
    const place = load<i32>(count);
    store<i32>(count, place + 1);
    const at = (b * T + t) * H + h;
    store<i32>(order + (<usize>place << 2), t);
    store<i32>(groups + (<usize>t << 2), place / job.group);
    store<i32>(ids + (<usize>place << 2), at);
    store<i32>(inverse + (<usize>at << 2), unit * job.slots + place);
  }
  for (let place = T; place < job.slots; place++) store<i32>(ids + (<usize>place << 2), (b * T + T - 1) * H + h);
}
