// One group of the sorted sequence at hand: its tokens are the queries; its own and those of the group before are keys.
// Scores are kept transposed, [keys, queries], so that what belongs to a query is a lane.
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { copyRow } from "../../../device/wasm/kernels/lanes.as";
import { packTransposed } from "../../attention/kernels/tile.as";

/** The score of a token with itself: below all others, and finite, so that it counts where there is nothing else. */
export const LOWEST: f32 = -1e30;

/** What the kernels are told, laid over the argument block. Strides in elements; outputs and gradients are packed. */
@unmanaged
export class Job {
  q: usize; k: usize; v: usize; order: usize; groups: usize; output: usize; lse: usize;
  dOutput: usize; dQ: usize; dK: usize; dV: usize;
  batch: i32; time: i32; heads: i32; keyWidth: i32; valueWidth: i32; rounds: i32; group: i32; groupCount: i32; causal: i32;
  qBatch: i32; qToken: i32; qHead: i32; kBatch: i32; kToken: i32; kHead: i32; vBatch: i32; vToken: i32; vHead: i32;
  scale: f32;
}

/** The group at hand, at the beginning of a thread's scratch memory. */
@unmanaged
export class Group {
  round: i32;
  /** Row (b·T + t)·H + h of token 0 in packed tensors, and (b·H + h)·T + t where heads lie apart. */
  row: usize; headRow: usize;
  /** Token 0 of the head in its operands. */
  q: usize; k: usize; v: usize;
  /** Its queries; keys before them, and all keys. */
  count: i32; before: i32; keys: i32;
  /** Tokens of the keys: the group before from its last one back, then the group itself. A query sees a run of them. */
  tokens: usize;
  /** Where rounds before this one put those tokens, and bytes between rounds. */
  places: usize; placeRow: usize;
  /** Rows of keys and values, without gaps. */
  keyRows: usize; valueRows: usize;
  /** Keys [from, to) that queries of the columns at hand see, and those queries scaled, [K, columns]. */
  from: i32; to: i32;
  columns: usize;
  /** The largest score of each of those queries, LOWEST where none counts. */
  maxima: usize;
}

/** Bytes of n floats in scratch. */
// @ts-ignore: decorator
@inline export function floats(n: i32): usize {
  return ((<usize>n << 2) + 63) & ~63;
}

/** Lays out scratch memory for so many columns at a time; what else a kernel needs begins at `maxima + floats(width)`. */
export function openScratch(job: Job, scratch: usize, width: i32): Group {
  const g = changetype<Group>(scratch);
  const keys = 2 * job.group;
  g.placeRow = floats(keys + 16);
  g.tokens = scratch + 128;
  g.places = g.tokens + g.placeRow;
  g.keyRows = g.places + <usize>job.rounds * g.placeRow;
  g.valueRows = g.keyRows + floats(keys * job.keyWidth);
  g.columns = g.valueRows + floats(keys * job.valueWidth);
  g.maxima = g.columns + floats(width * job.keyWidth);
  return g;
}

/** Opens group `unit` of all heads and rounds: its tokens, and their keys and values side by side. */
export function openGroup(job: Job, g: Group, unit: i32): void {
  const T = job.time, H = job.heads, R = job.rounds;
  const at = unit % job.groupCount, line = unit / job.groupCount;
  const head = line / R, b = head / H, h = head % H;
  g.round = line % R;
  g.row = <usize>b * T * H + h;
  g.headRow = <usize>head * T;
  g.q = job.q + (<usize>b * job.qBatch + <usize>h * job.qHead << 2);
  g.k = job.k + (<usize>b * job.kBatch + <usize>h * job.kHead << 2);
  g.v = job.v + (<usize>b * job.vBatch + <usize>h * job.vHead << 2);
  g.before = at > 0 ? job.group : 0;
  g.count = min(job.group, T - at * job.group);
  g.keys = g.before + g.count;
  const order = job.order + ((<usize>line * T + at * job.group) << 2);
  const own = g.tokens + (<usize>g.before << 2);
  for (let j: usize = 4; j <= <usize>g.before << 2; j += 4) store<i32>(g.tokens + j - 4, load<i32>(order - j));
  memory.copy(own, order, <usize>g.count << 2);
  memory.fill(g.tokens + (<usize>g.keys << 2), 0, 64);
  openPlaces(job, g, job.groups + (<usize>head * R * T << 2));
  gatherRows(g.tokens, g.keys, g.k, job.kToken, job.keyWidth, g.keyRows);
  gatherRows(g.tokens, g.keys, g.v, job.vToken, job.valueWidth, g.valueRows);
  g.from = g.before;
}

// The group before is read from its end.
function openPlaces(job: Job, g: Group, groups: usize): void {
  for (let r = 0; r < g.round; r++) {
    const to = g.places + <usize>r * g.placeRow;
    for (let j: usize = 0; j < <usize>g.keys << 2; j += 4)
      store<i32>(to + j, load<i32>(groups + (<usize>load<i32>(g.tokens + j) << 2)));
    groups += <usize>job.time << 2;
  }
}

/** Rows of some tokens side by side. */
export function gatherRows(tokens: usize, count: i32, from: usize, stride: i32, width: i32, to: usize): void {
  const bytes = <usize>width << 2;
  for (const end = tokens + (<usize>count << 2); tokens < end; tokens += 4) {
    copyRow(to, from + (<usize>load<i32>(tokens) * stride << 2), bytes);
    to += bytes;
  }
}

/** Finds the keys that any query of columns [column, column + width) may see; columns come in ascending order. */
function openKeys(job: Job, g: Group, column: i32, width: i32): void {
  if (!job.causal) {
    g.from = 0;
    g.to = g.keys;
    return;
  }
  g.to = g.before + min(column + width, g.count);
  const last = load<i32>(g.tokens + (<usize>(g.to - 1) << 2));
  while (g.from > 0 && load<i32>(g.tokens + (<usize>(g.from - 1) << 2)) < last) g.from--;
}

/**
 * Scores of columns [column, column + width) against keys [from, to), which it finds: row j of `s` is key from + j, and a
 * pair that does not count has -Infinity. Queries [width, K] lie at `queries`. Leaves the largest scores in `maxima`.
 */
export function scoreColumns(job: Job, g: Group, column: i32, width: i32, queries: usize, s: usize): void {
  const wide = <usize>width << 2, keyBytes = <usize>job.keyWidth << 2;
  openKeys(job, g, column, width);
  packTransposed(min(width, g.count - column), width, job.keyWidth, queries, keyBytes, g.columns, wide, job.scale);
  gemmBlock(g.to - g.from, width, job.keyWidth, g.keyRows + <usize>g.from * keyBytes, keyBytes, 4, g.columns, wide, s, wide, 0);
  for (let c = 0; c < width; c += 8) {
    const at = s + (<usize>c << 2);
    const maxima = g.maxima + (<usize>c << 2);
    if (g.round == 0) hideEight(job, g, column + c, at, wide, maxima, false);
    else hideEight(job, g, column + c, at, wide, maxima, true);
  }
  if (g.round == 0) setSelf(g, column, width, s, LOWEST);
}

/** Stores a number where a query of the columns meets its own key. */
export function setSelf(g: Group, column: i32, width: i32, s: usize, value: f32): void {
  const step = <usize>(width + 1) << 2;
  let at = s + (<usize>(g.before + column - g.from) * width << 2);
  for (let i = min(width, g.count - column); i > 0; i--) {
    store<f32>(at, value);
    at += step;
  }
}

/** Whether a key is the query itself or, where causal, comes after it. */
// @ts-ignore: decorator
@inline function isHidden(causal: i32, key: v128, query: v128): v128 {
  return causal ? i32x4.ge_s(key, query) : i32x4.eq(key, query);
}

/**
 * Hides what eight queries may not see, with `repeats` also pairs that met in a round before: there they count, and there a
 * token meets itself.
 */
// @ts-ignore: decorator
@inline function hideEight(job: Job, g: Group, column: i32, s: usize, wide: usize, maxima: usize, repeats: bool): void {
  const own = g.tokens + (<usize>(g.before + column) << 2);
  const query0 = v128.load(own), query1 = v128.load(own, 16);
  const hidden = f32x4.splat(-Infinity), one = i32x4.splat(1);
  const causal = job.causal;
  let max0 = f32x4.splat(LOWEST), max1 = max0;
  const toPlaces = g.places - g.tokens, row = g.placeRow;
  for (let at = g.tokens + (<usize>g.from << 2), end = g.tokens + (<usize>g.to << 2); at < end; at += 4) {
    const key = v128.load32_splat(at);
    let hides0 = isHidden(causal, key, query0), hides1 = isHidden(causal, key, query1);
    if (repeats) {
      let query = own + toPlaces, place = at + toPlaces;
      // A query sees its group and the one before: groups that are 0 or 1 apart, all others far as whole numbers.
      let apart0 = i32x4.splat(-1), apart1 = apart0;
      for (let r = g.round; r > 0; r--) {
        const theirs = v128.load32_splat(place);
        apart0 = i32x4.min_u(apart0, i32x4.sub(v128.load(query), theirs));
        apart1 = i32x4.min_u(apart1, i32x4.sub(v128.load(query, 16), theirs));
        query += row;
        place += row;
      }
      hides0 = v128.or(hides0, i32x4.le_u(apart0, one));
      hides1 = v128.or(hides1, i32x4.le_u(apart1, one));
    }
    const s0 = v128.bitselect(hidden, v128.load(s), hides0);
    const s1 = v128.bitselect(hidden, v128.load(s, 16), hides1);
    v128.store(s, s0);
    v128.store(s, s1, 16);
    max0 = f32x4.pmax(max0, s0);
    max1 = f32x4.pmax(max1, s1);
    s += wide;
  }
  v128.store(maxima, max0);
  v128.store(maxima, max1, 16);
}
