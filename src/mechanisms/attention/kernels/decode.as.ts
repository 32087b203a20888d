// One query for each batch row over its cache. A unit reads a block of keys and values of all heads in the order of
// memory and leaves maxima, sums and unnormalised outputs; a second pass joins the blocks of a row.
import { exp1, exp4 } from "../../../device/wasm/kernels/math.as";
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
  /** Scaled queries [HQ, K] and scores [HQ, blockKeys]. */
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
  const count = job.queryHeads * job.keyWidth;
  for (let i = 0; i < count; i++) {
    const q = rowsAt(job.q, job.qBatch, 0, job.qHead, batch, 0, i / job.keyWidth) + (<usize>(i % job.keyWidth) << 2);
    store<f32>(block.queries + (<usize>i << 2), load<f32>(q) * job.scale);
  }
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

/** Keys that are worked at a time. */
// @ts-ignore: decorator
@inline const KEYS: i32 = 4;

/**
 * Where the rows after the next four keys lie, and how many bytes of them each head reads ahead: 0 where they do not lie
 * side by side. Four rows at once, head by head, is no order that the machine foresees; read a little ahead in the order
 * of memory, rows are there when they are due.
 */
// @ts-ignore: decorator
@inline function aheadBytes(job: DecodeJob, block: Block, token: i32, width: i32, j: i32): usize {
  if (token != width || block.end - j < 2 * KEYS) return 0;
  return (<usize>(KEYS * token) << 2) / job.queryHeads;
}

/** One number of every cache line. */
// @ts-ignore: decorator
@inline function touch(at: usize, bytes: usize): v128 {
  let x = f32x4.splat(0);
  for (let i: usize = 0; i + 16 <= bytes; i += 64) x = v128.or(x, v128.load(at + i));
  return x;
}

/** Leaves what was touched somewhere, or the engine would not read it. */
// @ts-ignore: decorator
@inline function keep(block: Block, seen: v128): void {
  v128.store(changetype<usize>(block) + 32, seen);
}

/** Scores of all heads, four keys at a time. */
function score(job: DecodeJob, block: Block): void {
  const group = job.queryHeads / job.keyHeads;
  const row = <usize>job.kToken << 2;
  const width = <usize>job.keyWidth << 2;
  const scoreRow = <usize>job.blockKeys << 2;
  for (let j = block.first; j < block.end; j += 4) {
    const at = block.scores + (<usize>(j - block.first) << 2);
    const ahead = aheadBytes(job, block, job.kToken, job.keyHeads * job.keyWidth, j);
    const next = rowsAt(job.k, job.kBatch, job.kToken, 0, block.slot, j + KEYS, 0);
    let seen = f32x4.splat(0);
    for (let head = 0; head < job.queryHeads; head++) {
      const k = rowsAt(job.k, job.kBatch, job.kToken, job.kHead, block.slot, j, head / group);
      seen = v128.or(seen, touch(next + <usize>head * ahead, ahead));
      const q = block.queries + <usize>head * width;
      const to = at + <usize>head * scoreRow;
      if (block.end - j >= 4) v128.store(to, dotFour(q, k, row, width));
      else for (let i = j; i < block.end; i++) store<f32>(to + (<usize>(i - j) << 2), dotOne(q, k + <usize>(i - j) * row, width));
    }
    keep(block, seen);
  }
  if (job.maskBytes == 0) return;
  for (let j = block.first; j < block.end; j++) {
    if (allowed(job, block, j)) continue;
    const at = block.scores + (<usize>(j - block.first) << 2);
    for (let head = 0; head < job.queryHeads; head++) store<f32>(at + <usize>head * scoreRow, -Infinity);
  }
}

/** q·k of four keys: lanes of the products are added as (0 + 2) + (1 + 3), the rest of a width after them. */
function dotFour(q: usize, k: usize, row: usize, width: usize): v128 {
  const k1 = k + row, k2 = k1 + row, k3 = k2 + row;
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0);
  let i: usize = 0;
  for (; i + 16 <= width; i += 16) {
    const x = v128.load(q + i);
    a = fma(x, v128.load(k + i), a);
    b = fma(x, v128.load(k1 + i), b);
    c = fma(x, v128.load(k2 + i), c);
    d = fma(x, v128.load(k3 + i), d);
  }
  const ab = f32x4.add(i32x4.shuffle(a, b, 0, 1, 4, 5), i32x4.shuffle(a, b, 2, 3, 6, 7));
  const cd = f32x4.add(i32x4.shuffle(c, d, 0, 1, 4, 5), i32x4.shuffle(c, d, 2, 3, 6, 7));
  let sum = f32x4.add(i32x4.shuffle(ab, cd, 0, 2, 4, 6), i32x4.shuffle(ab, cd, 1, 3, 5, 7));
  for (; i < width; i += 4) {
    const x = v128.load_splat<f32>(q + i);
    sum = fma(x, f32x4(load<f32>(k + i), load<f32>(k1 + i), load<f32>(k2 + i), load<f32>(k3 + i)), sum);
  }
  return sum;
}

/** The same bits as a lane of dotFour. */
function dotOne(q: usize, k: usize, width: usize): f32 {
  return f32x4.extract_lane(dotFour(q, k, 0, width), 0);
}

/** Scores of one head become weights; keeps their maximum and sum. */
function weighHead(job: DecodeJob, block: Block, head: i32): void {
  const s = block.scores + (<usize>(head * job.blockKeys) << 2);
  const n = block.end - block.first;
  const partial = block.partial + <usize>head * partialRow(job);
  let wide = f32x4.splat(LOWEST);
  let i: i32 = 0;
  for (; i + 4 <= n; i += 4) wide = f32x4.pmax(wide, v128.load(s + (<usize>i << 2)));
  let largest = max(max(f32x4.extract_lane(wide, 0), f32x4.extract_lane(wide, 1)), max(f32x4.extract_lane(wide, 2), f32x4.extract_lane(wide, 3)));
  for (; i < n; i++) largest = max(largest, load<f32>(s + (<usize>i << 2)));
  const shift = f32x4.splat(largest);
  let sums = f32x4.splat(0);
  for (i = 0; i + 4 <= n; i += 4) {
    const at = s + (<usize>i << 2);
    const p = exp4(f32x4.sub(v128.load(at), shift));
    v128.store(at, p);
    sums = f32x4.add(sums, p);
  }
  let sum = f32x4.extract_lane(sums, 0) + f32x4.extract_lane(sums, 1) + (f32x4.extract_lane(sums, 2) + f32x4.extract_lane(sums, 3));
  for (; i < n; i++) {
    const at = s + (<usize>i << 2);
    const p = exp1(load<f32>(at) - largest);
    store<f32>(at, p);
    sum += p;
  }
  store<f32>(partial, largest);
  store<f32>(partial, sum, 4);
  memory.fill(partial + 8, 0, <usize>job.valueWidth << 2);
}

/** Adds the weighted values of all heads, four keys at a time; hidden keys are left out, whatever they hold. */
function addValues(job: DecodeJob, block: Block): void {
  const group = job.queryHeads / job.keyHeads;
  const row = <usize>job.vToken << 2;
  const width = <usize>job.valueWidth << 2;
  let j = block.first;
  while (j < block.end) {
    const whole = block.end - j >= 4 && (job.maskBytes == 0 || (allowed(job, block, j) && allowed(job, block, j + 1) && allowed(job, block, j + 2) && allowed(job, block, j + 3)));
    const keys = whole ? 4 : 1;
    if (!whole && !allowed(job, block, j)) {
      j++;
      continue;
    }
    const ahead = whole ? aheadBytes(job, block, job.vToken, job.keyHeads * job.valueWidth, j) : 0;
    const next = rowsAt(job.v, job.vBatch, job.vToken, 0, block.slot, j + KEYS, 0);
    let seen = f32x4.splat(0);
    for (let head = 0; head < job.queryHeads; head++) {
      const p = block.scores + (<usize>(head * job.blockKeys + j - block.first) << 2);
      const v = rowsAt(job.v, job.vBatch, job.vToken, job.vHead, block.slot, j, head / group);
      const o = block.partial + <usize>head * partialRow(job) + 8;
      seen = v128.or(seen, touch(next + <usize>head * ahead, ahead));
      if (whole) addFour(o, p, v, row, width);
      else addOne(o, load<f32>(p), v, width);
    }
    keep(block, seen);
    j += keys;
  }
}

function addFour(o: usize, p: usize, v: usize, row: usize, width: usize): void {
  const p0 = v128.load_splat<f32>(p), p1 = v128.load_splat<f32>(p + 4), p2 = v128.load_splat<f32>(p + 8), p3 = v128.load_splat<f32>(p + 12);
  const v1 = v + row, v2 = v1 + row, v3 = v2 + row;
  let i: usize = 0;
  for (; i + 16 <= width; i += 16) {
    const x = fma(p0, v128.load(v + i), v128.load(o + i));
    const y = fma(p1, v128.load(v1 + i), x);
    const z = fma(p2, v128.load(v2 + i), y);
    v128.store(o + i, fma(p3, v128.load(v3 + i), z));
  }
  for (; i < width; i += 4) {
    const x = fma(p0, v128.load32_zero(v + i), v128.load32_zero(o + i));
    const y = fma(p1, v128.load32_zero(v1 + i), x);
    const z = fma(p2, v128.load32_zero(v2 + i), y);
    v128.store32_lane(o + i, fma(p3, v128.load32_zero(v3 + i), z), 0);
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
    for (let c = 0; c < job.valueWidth; c++) store<f32>(o + (<usize>c << 2), load<f32>(o + (<usize>c << 2)) * share);
    store<f32>(job.lse + (<usize>unit << 2), sum == 0 ? -Infinity : largest + Mathf.log(sum));
  }
}
