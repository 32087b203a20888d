// Gradients of attention inside groups. Every pair counts in one round only, so that weights over all rounds are exp of a
// score less the joined log-sum-exp, whichever round a pair is met in.
//   P = exp(S - lse)    dP = dO Vᵀ    dS = P (dP - dO·O)    dV += Pᵀ dO    dK += scale dSᵀ Q    dQ += scale dS K
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { storeExp8 } from "../../../device/wasm/kernels/math.as";
import { dotRun } from "../../../device/wasm/kernels/rows.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { packTransposed } from "../../attention/kernels/tile.as";
import { floats, gatherRows, Group, Job, openGroup, openScratch, scoreColumns, setSelf } from "./group.as";

/** Queries of one turn: also the inner axis of the products for keys and values. */
const STRIP: i32 = 16;

/** Stands for the log-sum-exp of a query that is not there: every weight becomes 0. */
const NOTHING: f32 = 1e30;

/** What a strip of queries takes in scratch. */
@unmanaged
class Strip {
  /** Queries [STRIP, K], then their gradients; output gradients [STRIP, V] and [V, STRIP]; numbers of each query. */
  queries: usize; dOutput: usize; dOutputT: usize; lse: usize; delta: usize;
  /** Weights and score gradients [keys, STRIP], gradients of all keys and values of the group. */
  weights: usize; dScores: usize; dKeys: usize; dValues: usize;
}

// args: as Job; output [B,T,H,V] and lse [B,T,H] are those of all rounds. One unit is one head of one batch row.
export function lsh_groups_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const g = openScratch(job, scratch, STRIP);
  const strip = openStrip(job, g.maxima + floats(STRIP));
  const K = job.keyWidth, V = job.valueWidth, groups = job.rounds * job.groupCount;
  for (let head = begin; head < end; head++) {
    const row = <usize>(head / job.heads) * job.time * job.heads + head % job.heads;
    clearHead(job, job.dQ, row, K);
    clearHead(job, job.dK, row, K);
    clearHead(job, job.dV, row, V);
    for (let n = 0; n < groups; n++) {
      openGroup(job, g, head * groups + n);
      memory.fill(strip.dKeys, 0, <usize>(g.keys * K) << 2);
      memory.fill(strip.dValues, 0, <usize>(g.keys * V) << 2);
      for (let column = 0; column < g.count; column += STRIP) gradeStrip(job, g, strip, column);
      addRows(job, g.tokens, g.keys, strip.dKeys, job.dK, row, K, job.scale);
      addRows(job, g.tokens, g.keys, strip.dValues, job.dV, row, V, 1);
    }
  }
}

function openStrip(job: Job, from: usize): Strip {
  const strip = changetype<Strip>(from);
  const keys = 2 * job.group;
  strip.queries = from + 64;
  strip.dOutput = strip.queries + floats(STRIP * job.keyWidth);
  strip.dOutputT = strip.dOutput + floats(STRIP * job.valueWidth);
  strip.lse = strip.dOutputT + floats(STRIP * job.valueWidth);
  strip.delta = strip.lse + floats(STRIP);
  strip.weights = strip.delta + floats(STRIP);
  strip.dScores = strip.weights + floats(STRIP * keys);
  strip.dKeys = strip.dScores + floats(STRIP * keys);
  strip.dValues = strip.dKeys + floats(keys * job.keyWidth);
  return strip;
}

function clearHead(job: Job, to: usize, row: usize, width: i32): void {
  const bytes = <usize>width << 2;
  for (let t = 0; t < job.time; t++) memory.fill(to + (row + <usize>t * job.heads) * bytes, 0, bytes);
}

function gradeStrip(job: Job, g: Group, strip: Strip, column: i32): void {
  const K = job.keyWidth, V = job.valueWidth;
  const keyBytes = <usize>K << 2, valueBytes = <usize>V << 2, wide: usize = STRIP << 2;
  const count = min(STRIP, g.count - column);
  const tokens = g.tokens + (<usize>(g.before + column) << 2);
  gatherRows(tokens, count, g.q, job.qToken, K, strip.queries);
  gatherRows(tokens, count, job.dOutput + g.row * valueBytes, job.heads * V, V, strip.dOutput);
  openNumbers(job, g, strip, tokens, count);
  scoreColumns(job, g, column, STRIP, strip.queries, strip.weights);
  const keys = g.to - g.from;
  const ownKeys = g.keyRows + <usize>g.from * keyBytes, values = g.valueRows + <usize>g.from * valueBytes;
  packTransposed(count, STRIP, V, strip.dOutput, valueBytes, strip.dOutputT, wide, 1);
  gemmBlock(keys, STRIP, V, values, valueBytes, 4, strip.dOutputT, wide, strip.dScores, wide, 0);
  gradeScores(strip, keys);
  if (g.round == 0) setSelf(g, column, STRIP, strip.dScores, 0);
  gemmBlock(keys, V, count, strip.weights, wide, 4, strip.dOutput, valueBytes, strip.dValues + <usize>g.from * valueBytes, valueBytes, 1);
  gemmBlock(keys, K, count, strip.dScores, wide, 4, strip.queries, keyBytes, strip.dKeys + <usize>g.from * keyBytes, keyBytes, 1);
  gemmBlock(count, K, keys, strip.dScores, 4, wide, ownKeys, keyBytes, strip.queries, keyBytes, 0);
  addRows(job, tokens, count, strip.queries, job.dQ, g.row, K, job.scale);
}

/** The log-sum-exp of every query, and what its score gradients subtract. */
function openNumbers(job: Job, g: Group, strip: Strip, tokens: usize, count: i32): void {
  const bytes = <usize>job.valueWidth << 2;
  for (let i = 0; i < STRIP; i++) {
    const at = <usize>i << 2;
    let lse = NOTHING, delta: f32 = 0;
    if (i < count) {
      const row = g.row + <usize>load<i32>(tokens + at) * job.heads;
      lse = load<f32>(job.lse + (row << 2));
      delta = dotRun(job.output + row * bytes, strip.dOutput + <usize>i * bytes, job.valueWidth);
    }
    store<f32>(strip.lse + at, lse);
    store<f32>(strip.delta + at, delta);
  }
}

/** Scores become weights, and gradients of weights those of scores. */
function gradeScores(strip: Strip, keys: i32): void {
  const lse = strip.lse, delta = strip.delta;
  let p = strip.weights, dS = strip.dScores;
  for (; keys > 0; keys--) {
    for (let c: usize = 0; c < <usize>STRIP << 2; c += 32) {
      storeExp8(p + c, f32x4.sub(v128.load(p + c), v128.load(lse + c)), f32x4.sub(v128.load(p + c, 16), v128.load(lse + c, 16)));
      const a = f32x4.mul(v128.load(p + c), f32x4.sub(v128.load(dS + c), v128.load(delta + c)));
      const b = f32x4.mul(v128.load(p + c, 16), f32x4.sub(v128.load(dS + c, 16), v128.load(delta + c, 16)));
      v128.store(dS + c, a);
      v128.store(dS + c, b, 16);
    }
    p += STRIP << 2;
    dS += STRIP << 2;
  }
}

/** Adds rows, times a factor, to where their tokens stand. */
function addRows(job: Job, tokens: usize, count: i32, rows: usize, to: usize, row: usize, width: i32, factor: f32): void {
  const wide = f32x4.splat(factor), bytes = <usize>width << 2;
  for (const end = tokens + (<usize>count << 2); tokens < end; tokens += 4) {
    const at = to + (row + <usize>load<i32>(tokens) * job.heads) * bytes;
    let c: usize = 0;
    for (; c + 16 <= bytes; c += 16) v128.store(at + c, fma(wide, v128.load(rows + c), v128.load(at + c)));
    for (; c < bytes; c += 4) store<f32>(at + c, factor * load<f32>(rows + c) + load<f32>(at + c));
    rows += bytes;
  }
}
