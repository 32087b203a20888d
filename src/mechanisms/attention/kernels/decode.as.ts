// One query for each batch row over its cache. A unit reads a block of keys and values of all heads in the order of
// memory and leaves maxima, sums and unnormalised outputs; a second pass joins the blocks of a row.
//
// Four keys are worked at a time, and they are a quarter of the block apart: four rows side by side make an order of reads
// that the machine does not foresee, four walks from end to end make four that it does.
import { exp1, storeExp8 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { rowsAt } from "./job.as";

/** Starts a maximum: below any score, yet finite. */
const LOWEST: f32 = -1e30;

/** Argument block, in the order of decode.ts. Strides are in elements. */
@unmanaged
class DecodeJob {
  q: usize;
  k: usize;
  v: usize;
  keyMask: usize;
  slots: usize;
  lengths: usize;
  partials: usize;
  output: usize;
  lse: usize;

  keyTime: i32;
  queryHeads: i32;
  keyHeads: i32;
  keyWidth: i32;
  valueWidth: i32;
  window: i32;
  maskBytes: i32;
  cached: i32;
  blockKeys: i32;
  blocks: i32;
  qBatch: i32;
  qHead: i32;
  kBatch: i32;
  kToken: i32;
  kHead: i32;
  vBatch: i32;
  vToken: i32;
  vHead: i32;
  outputBatch: i32;
  outputHead: i32;
  batch: i32;

  scale: f32;
}

/** Keys [first, end) of one batch row that a unit takes, and where they lie. */
@unmanaged
class Block {
  batch: i32;
  slot: i32;
  first: i32;
  end: i32;
  /** Query heads of a key head. */
  group: i32;
  /** Scaled queries [HQ, K] and scores [HQ, blockKeys + 4]. */
  queries: usize;
  scores: usize;
  /** Per query head: maximum, sum, then V outputs. */
  partial: usize;
}

// @ts-ignore: decorator
@inline function partialRow(job: DecodeJob): usize {
  return <usize>(job.valueWidth + 2) << 2;
}

// One unit is one block of keys of one batch row.
export function attention_decode_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<DecodeJob>(args);
  const block = changetype<Block>(scratch);
  block.queries = scratch + 64;
  block.group = job.queryHeads / job.keyHeads;
  block.scores = block.queries + (<usize>(job.queryHeads * job.keyWidth) << 2);
  for (let unit = begin; unit < end; unit++) {
    openBlock(job, block, unit / job.blocks, unit % job.blocks);
    block.partial = job.partials + <usize>unit * job.queryHeads * partialRow(job);
    if (block.first < block.end) {
      score(job, block);
      for (let head = 0; head < job.queryHeads; head++) weighHead(job, block, head);
      addValues(job, block);
    } else emptyBlock(job, block);
  }
}

function openBlock(job: DecodeJob, block: Block, batch: i32, at: i32): void {
  block.batch = batch;
  block.slot = job.cached ? load<i32>(job.slots + (<usize>batch << 2)) : batch;
  const keys = job.cached ? load<i32>(job.lengths + (<usize>batch << 2)) : job.keyTime;
  const from = at * job.blockKeys;
  block.first = job.window > 0 ? max(from, keys - job.window) : from;
  block.end = min(from + job.blockKeys, keys);
  const width = <usize>job.keyWidth << 2;
  for (let head = 0; head < job.queryHeads; head++) {
    const q = rowsAt(job.q, job.qBatch, 0, job.qHead, batch, 0, head);
    scaled(block.queries + <usize>head * width, q, job.scale, width);
  }
}

/** y = factor · x, of so many bytes. */
function scaled(y: usize, x: usize, factor: f32, bytes: usize): void {
  const wide = f32x4.splat(factor);
  let i: usize = 0;
  for (; i + 16 <= bytes; i += 16) v128.store(y + i, f32x4.mul(wide, v128.load(x + i)));
  for (; i < bytes; i += 4) store<f32>(y + i, factor * load<f32>(x + i));
}

function emptyBlock(job: DecodeJob, block: Block): void {
  for (let head = 0; head < job.queryHeads; head++) {
    const partial = block.partial + <usize>head * partialRow(job);
    memory.fill(partial, 0, partialRow(job));
    store<f32>(partial, LOWEST);
  }
}

// @ts-ignore: decorator
@inline function allowed(job: DecodeJob, block: Block, j: i32): bool {
  const at = <usize>block.batch * job.keyTime + j;
  if (job.maskBytes == 1) return load<u8>(job.keyMask + at) != 0;
  if (job.maskBytes == 4) return load<i32>(job.keyMask + (at << 2)) != 0;
  return true;
}

/** The key whose score is the i-th of a block: lanes of a vector of scores are a quarter of the block apart. */
// @ts-ignore: decorator
@inline function keyOf(block: Block, i: i32): i32 {
  const quarter = (block.end - block.first) >> 2;
  return block.first + (i < quarter << 2 ? (i >> 2) + (i & 3) * quarter : i);
}

/** Bytes of the scores of one head: a last key of three writes as many as four. */
// @ts-ignore: decorator
@inline function scoreRow(job: DecodeJob): usize {
  return <usize>(job.blockKeys + 4) << 2;
}

/** Scores of all heads, four keys at a time. */
function score(job: DecodeJob, block: Block): void {
  const n = block.end - block.first, quarter = n >> 2;
  const apart = (<usize>quarter * job.kToken) << 2;
  for (let i = 0; i < quarter << 2; i += 4) scoreFour(job, block, i, apart);
  for (let i = quarter << 2; i < n; i++) scoreFour(job, block, i, 0);
  if (job.maskBytes == 0) return;
  for (let i = 0; i < n; i++) {
    if (allowed(job, block, keyOf(block, i))) continue;
    const at = block.scores + (<usize>i << 2);
    for (let head = 0; head < job.queryHeads; head++) store<f32>(at + <usize>head * scoreRow(job), -Infinity);
  }
}

/**
 * The i-th score and the three after it, of all heads, of keys so many bytes apart.
 *
 * The engine sinks a product to where its sum is used, below every load between: stores that nobody reads, of sums on their
 * way, keep at most ten operands waiting at a time, which is what the registers hold.
 */
function scoreFour(job: DecodeJob, block: Block, i: i32, apart: usize): void {
  const rest = <usize>(job.keyWidth & 31) << 2, width = (<usize>job.keyWidth << 2) - rest;
  const group = block.group, next = (<usize>job.kHead << 2) - width, row = scoreRow(job);
  let k = rowsAt(job.k, job.kBatch, job.kToken, 0, block.slot, keyOf(block, i), 0);
  let q = block.queries, to = block.scores + (<usize>i << 2), left = group;
  for (let head = job.queryHeads; head > 0; head--) {
    let a = f32x4.splat(0), b = a, c = a, d = a;
    for (let n = width; n > 0; n -= 128) {
      const k1 = k + apart, k2 = k1 + apart, k3 = k2 + apart;
      let x = v128.load(q), y = v128.load(q, 16);
      a = fma(y, v128.load(k, 16), fma(x, v128.load(k), a)), b = fma(y, v128.load(k1, 16), fma(x, v128.load(k1), b));
      c = fma(y, v128.load(k2, 16), fma(x, v128.load(k2), c)), d = fma(y, v128.load(k3, 16), fma(x, v128.load(k3), d));
      v128.store(to, a), v128.store(to, b), v128.store(to, c), v128.store(to, d);
      x = v128.load(q, 32), y = v128.load(q, 48);
      a = fma(y, v128.load(k, 48), fma(x, v128.load(k, 32), a)), b = fma(y, v128.load(k1, 48), fma(x, v128.load(k1, 32), b));
      c = fma(y, v128.load(k2, 48), fma(x, v128.load(k2, 32), c)), d = fma(y, v128.load(k3, 48), fma(x, v128.load(k3, 32), d));
      v128.store(to, a), v128.store(to, b), v128.store(to, c), v128.store(to, d);
      x = v128.load(q, 64), y = v128.load(q, 80);
      a = fma(y, v128.load(k, 80), fma(x, v128.load(k, 64), a)), b = fma(y, v128.load(k1, 80), fma(x, v128.load(k1, 64), b));
      c = fma(y, v128.load(k2, 80), fma(x, v128.load(k2, 64), c)), d = fma(y, v128.load(k3, 80), fma(x, v128.load(k3, 64), d));
      v128.store(to, a), v128.store(to, b), v128.store(to, c), v128.store(to, d);
      x = v128.load(q, 96), y = v128.load(q, 112);
      a = fma(y, v128.load(k, 112), fma(x, v128.load(k, 96), a)), b = fma(y, v128.load(k1, 112), fma(x, v128.load(k1, 96), b));
      c = fma(y, v128.load(k2, 112), fma(x, v128.load(k2, 96), c)), d = fma(y, v128.load(k3, 112), fma(x, v128.load(k3, 96), d));
      k += 128, q += 128;
    }
    v128.store(to, laneSums(a, b, c, d));
    if (--left == 0) k += next, left = group;
    else k -= width;
    q += rest, to += row;
  }
  if (rest > 0) scoreRest(job, block, i, apart);
}

/** The sums of the lanes of four vectors, as (0 + 2) + (1 + 3). */
// @ts-ignore: decorator
@inline function laneSums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(i32x4.shuffle(a, b, 0, 1, 4, 5), i32x4.shuffle(a, b, 2, 3, 6, 7));
  const cd = f32x4.add(i32x4.shuffle(c, d, 0, 1, 4, 5), i32x4.shuffle(c, d, 2, 3, 6, 7));
  return f32x4.add(i32x4.shuffle(ab, cd, 0, 2, 4, 6), i32x4.shuffle(ab, cd, 1, 3, 5, 7));
}

/** Adds to the scores of scoreFour what the last floats of a width, fewer than 32, give. */
function scoreRest(job: DecodeJob, block: Block, i: i32, apart: usize): void {
  const width = <usize>job.keyWidth << 2, rest = <usize>(job.keyWidth & 31) << 2;
  for (let head = 0; head < job.queryHeads; head++) {
    const to = block.scores + <usize>head * scoreRow(job) + (<usize>i << 2);
    const q = block.queries + (<usize>head + 1) * width - rest;
    const k = rowsAt(job.k, job.kBatch, job.kToken, job.kHead, block.slot, keyOf(block, i), head / block.group) + width - rest;
    const k1 = k + apart, k2 = k1 + apart, k3 = k2 + apart;
    let a = f32x4.splat(0), b = a, c = a, d = a;
    let at: usize = 0;
    for (; at + 16 <= rest; at += 16) {
      const x = v128.load(q + at);
      a = fma(x, v128.load(k + at), a);
      b = fma(x, v128.load(k1 + at), b);
      c = fma(x, v128.load(k2 + at), c);
      d = fma(x, v128.load(k3 + at), d);
    }
    let sum = f32x4.add(v128.load(to), laneSums(a, b, c, d));
    for (; at < rest; at += 4) {
      const four = f32x4(load<f32>(k + at), load<f32>(k1 + at), load<f32>(k2 + at), load<f32>(k3 + at));
      sum = fma(v128.load_splat<f32>(q + at), four, sum);
    }
    v128.store(to, sum);
  }
}

/** Scores of one head become weights; keeps their maximum and sum. */
function weighHead(job: DecodeJob, block: Block, head: i32): void {
  const s = block.scores + <usize>head * scoreRow(job);
  const bytes = <usize>(block.end - block.first) << 2, whole = (bytes + 31) & ~31;
  // Scores that are not there weigh nothing; their room is there, as blocks are of whole vectors.
  for (let i = bytes; i < whole; i += 4) store<f32>(s + i, -Infinity);
  let wide = f32x4.splat(LOWEST), more = f32x4.splat(LOWEST);
  for (let i: usize = 0; i < whole; i += 32) {
    wide = f32x4.pmax(wide, v128.load(s + i));
    more = f32x4.pmax(more, v128.load(s + i, 16));
  }
  wide = f32x4.pmax(wide, more);
  wide = f32x4.pmax(wide, i32x4.shuffle(wide, wide, 2, 3, 0, 1));
  const largest = f32x4.pmax(wide, i32x4.shuffle(wide, wide, 1, 0, 3, 2));
  let sums = f32x4.splat(0), others = f32x4.splat(0);
  for (let i: usize = 0; i < whole; i += 32) {
    storeExp8(s + i, f32x4.sub(v128.load(s + i), largest), f32x4.sub(v128.load(s + i, 16), largest));
    sums = f32x4.add(sums, v128.load(s + i));
    others = f32x4.add(others, v128.load(s + i, 16));
  }
  sums = f32x4.add(sums, others);
  sums = f32x4.add(sums, i32x4.shuffle(sums, sums, 2, 3, 0, 1));
  sums = f32x4.add(sums, i32x4.shuffle(sums, sums, 1, 0, 3, 2));
  const partial = block.partial + <usize>head * partialRow(job);
  v128.store32_lane(partial, largest, 0);
  v128.store32_lane(partial, sums, 0, 4);
  memory.fill(partial + 8, 0, <usize>job.valueWidth << 2);
}

/** Adds the weighted values of all heads, four keys at a time; hidden keys are left out, whatever they hold. */
function addValues(job: DecodeJob, block: Block): void {
  const n = block.end - block.first;
  for (let i = 0; i < n; i += 4) {
    const keys = min(4, n - i);
    if (keys == 4 && (job.maskBytes == 0 || allowFour(job, block, i))) addFour(job, block, i);
    else for (let lane = i; lane < i + keys; lane++) if (allowed(job, block, keyOf(block, lane))) addKey(job, block, lane);
  }
}

function allowFour(job: DecodeJob, block: Block, i: i32): bool {
  for (let lane = 0; lane < 4; lane++) if (!allowed(job, block, keyOf(block, i + lane))) return false;
  return true;
}

/** Adds the values of the four keys of a vector of scores, of all heads. */
function addFour(job: DecodeJob, block: Block, i: i32): void {
  const rest = <usize>(job.valueWidth & 31) << 2, width = (<usize>job.valueWidth << 2) - rest;
  const group = block.group, next = (<usize>job.vHead << 2) - width, row = scoreRow(job), gap = rest + 8;
  const apart = (<usize>((block.end - block.first) >> 2) * job.vToken) << 2;
  let v = rowsAt(job.v, job.vBatch, job.vToken, 0, block.slot, keyOf(block, i), 0);
  let p = block.scores + (<usize>i << 2), o = block.partial + 8, left = group;
  for (let head = job.queryHeads; head > 0; head--) {
    const p0 = v128.load_splat<f32>(p), p1 = v128.load_splat<f32>(p, 4), p2 = v128.load_splat<f32>(p, 8), p3 = v128.load_splat<f32>(p, 12);
    for (let n = width; n > 0; n -= 128) {
      const v1 = v + apart, v2 = v1 + apart, v3 = v2 + apart;
      v128.store(o, fma(p3, v128.load(v3), fma(p2, v128.load(v2), fma(p1, v128.load(v1), fma(p0, v128.load(v), v128.load(o))))));
      v128.store(o, fma(p3, v128.load(v3, 16), fma(p2, v128.load(v2, 16), fma(p1, v128.load(v1, 16), fma(p0, v128.load(v, 16), v128.load(o, 16))))), 16);
      v128.store(o, fma(p3, v128.load(v3, 32), fma(p2, v128.load(v2, 32), fma(p1, v128.load(v1, 32), fma(p0, v128.load(v, 32), v128.load(o, 32))))), 32);
      v128.store(o, fma(p3, v128.load(v3, 48), fma(p2, v128.load(v2, 48), fma(p1, v128.load(v1, 48), fma(p0, v128.load(v, 48), v128.load(o, 48))))), 48);
      v128.store(o, fma(p3, v128.load(v3, 64), fma(p2, v128.load(v2, 64), fma(p1, v128.load(v1, 64), fma(p0, v128.load(v, 64), v128.load(o, 64))))), 64);
      v128.store(o, fma(p3, v128.load(v3, 80), fma(p2, v128.load(v2, 80), fma(p1, v128.load(v1, 80), fma(p0, v128.load(v, 80), v128.load(o, 80))))), 80);
      v128.store(o, fma(p3, v128.load(v3, 96), fma(p2, v128.load(v2, 96), fma(p1, v128.load(v1, 96), fma(p0, v128.load(v, 96), v128.load(o, 96))))), 96);
      v128.store(o, fma(p3, v128.load(v3, 112), fma(p2, v128.load(v2, 112), fma(p1, v128.load(v1, 112), fma(p0, v128.load(v, 112), v128.load(o, 112))))), 112);
      v += 128, o += 128;
    }
    if (--left == 0) v += next, left = group;
    else v -= width;
    p += row, o += gap;
  }
  if (rest > 0) addRest(job, block, i, apart);
}

/** What addFour does, for the last floats of a width, fewer than 32. */
function addRest(job: DecodeJob, block: Block, i: i32, apart: usize): void {
  const width = <usize>job.valueWidth << 2, from = width & ~127;
  for (let head = 0; head < job.queryHeads; head++) {
    const p = block.scores + <usize>head * scoreRow(job) + (<usize>i << 2);
    const o = block.partial + <usize>head * partialRow(job) + 8;
    const v = rowsAt(job.v, job.vBatch, job.vToken, job.vHead, block.slot, keyOf(block, i), head / block.group);
    const p0 = v128.load_splat<f32>(p), p1 = v128.load_splat<f32>(p, 4), p2 = v128.load_splat<f32>(p, 8), p3 = v128.load_splat<f32>(p, 12);
    const v1 = v + apart, v2 = v1 + apart, v3 = v2 + apart;
    let at = from;
    for (; at + 16 <= width; at += 16) {
      const x = fma(p1, v128.load(v1 + at), fma(p0, v128.load(v + at), v128.load(o + at)));
      v128.store(o + at, fma(p3, v128.load(v3 + at), fma(p2, v128.load(v2 + at), x)));
    }
    for (; at < width; at += 4) {
      const x = fma(p1, v128.load32_zero(v1 + at), fma(p0, v128.load32_zero(v + at), v128.load32_zero(o + at)));
      v128.store32_lane(o + at, fma(p3, v128.load32_zero(v3 + at), fma(p2, v128.load32_zero(v2 + at), x)), 0);
    }
  }
}

/** Adds the values of one key, of all heads. */
function addKey(job: DecodeJob, block: Block, i: i32): void {
  const width = <usize>job.valueWidth << 2;
  for (let head = 0; head < job.queryHeads; head++) {
    const v = rowsAt(job.v, job.vBatch, job.vToken, job.vHead, block.slot, keyOf(block, i), head / block.group);
    const weight = load<f32>(block.scores + <usize>head * scoreRow(job) + (<usize>i << 2));
    addOne(block.partial + <usize>head * partialRow(job) + 8, weight, v, width);
  }
}

function addOne(o: usize, p: f32, v: usize, width: usize): void {
  const factor = f32x4.splat(p);
  let i: usize = 0;
  for (; i + 16 <= width; i += 16) v128.store(o + i, fma(factor, v128.load(v + i), v128.load(o + i)));
  for (; i < width; i += 4) v128.store32_lane(o + i, fma(factor, v128.load32_zero(v + i), v128.load32_zero(o + i)), 0);
}

// Joins the blocks of each query. One unit is one query head of one batch row.
export function attention_decodeJoin_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<DecodeJob>(args);
  const row = partialRow(job);
  for (let unit = begin; unit < end; unit++) {
    const batch = unit / job.queryHeads, head = unit % job.queryHeads;
    const first = job.partials + (<usize>batch * job.blocks * job.queryHeads + head) * row;
    const stride = row * job.queryHeads;
    let largest = LOWEST;
    for (let n = 0; n < job.blocks; n++) largest = max(largest, load<f32>(first + <usize>n * stride));
    const o = rowsAt(job.output, job.outputBatch, 0, job.outputHead, batch, 0, head);
    memory.fill(o, 0, <usize>job.valueWidth << 2);
    let sum: f32 = 0;
    for (let n = 0; n < job.blocks; n++) {
      const partial = first + <usize>n * stride;
      const weight = exp1(load<f32>(partial) - largest);
      sum += weight * load<f32>(partial, 4);
      addOne(o, weight, partial + 8, <usize>job.valueWidth << 2);
    }
    const share: f32 = sum == 0 ? 0 : 1 / sum;
    scaled(o, o, share, <usize>job.valueWidth << 2);
    store<f32>(job.lse + (<usize>unit << 2), sum == 0 ? -Infinity : largest + Mathf.log(sum));
  }
}
