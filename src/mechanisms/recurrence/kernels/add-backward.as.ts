// Chunkwise backward of the additive recurrence: nothing of the size T×K×V is kept. A unit walks the value
// heads of a group one after another, so that dq and dk of their common key head are summed in a fixed order; a group is
// cut in `parts` that leave their sums apart where there would be few units otherwise.
import { transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { HEAD, KEY, maskScores, prepareHead } from "./add-decay.as";
import { FINAL_NORMALIZER, FINAL_STATE, INITIAL_NORMALIZER, INITIAL_STATE, PACKED } from "./add-forward.as";
import {
  GATE_GRADIENT, Gradient, GradientArguments, INITIAL_NORMALIZER_GRADIENT, INITIAL_STATE_GRADIENT, openBoth, openChunk,
  openGradient, recordAt, setState,
} from "./add-gradient.as";
import { gatePart } from "./add-gradient-gate.as";
import { keyPart, retreat, valuePart } from "./add-gradient-key.as";
import { advance, queryPart, weightsOf } from "./add-gradient-query.as";
import { clear, loadLive, loadRows, storeLive, storeRow, storeRows, touchRows } from "./add-rows.as";

/** Where dq and dk of a part go: the first part to the results themselves, later ones to rows laid without gaps. */
function locateParts(a: GradientArguments, r: Gradient, begin: usize, keyHead: i32, part: i32): void {
  const K = a.keyWidth;
  const column = <usize>(keyHead * K) << 2;
  r.dqRow = <usize>a.dqStride << 2;
  r.dkRow = <usize>a.dkStride << 2;
  r.dq0 = <usize>a.dq + begin * r.dqRow + column;
  r.dk0 = <usize>a.dk + begin * r.dkRow + column;
  if (part == 0) return;
  const width = <usize>(a.heads * K) << 2;
  const total = a.flags & PACKED ? <usize>a.time : <usize>a.sequences * <usize>a.time;
  const offset = (<usize>(part - 1) * total + begin) * width + column;
  r.dqRow = width;
  r.dkRow = width;
  r.dq0 = <usize>a.dqParts + offset;
  r.dk0 = <usize>a.dkParts + offset;
}

/** Points the record at value head `head` of sequence n, whose first row is `begin`. */
function locate(a: GradientArguments, r: Gradient, n: i32, head: i32, begin: usize): void {
  const K = a.keyWidth;
  const V = a.valueWidth;
  const keyColumn = <usize>(head / (a.valueHeads / a.heads) * K) << 2;
  const valueColumn = <usize>(head * V) << 2;
  const gateColumn = <usize>(r.decay == KEY ? head * K : head) << 2;
  r.q0 = <usize>a.q + begin * r.qRow + keyColumn;
  r.k0 = <usize>a.k + begin * r.kRow + keyColumn;
  r.v0 = <usize>a.v + begin * r.vRow + valueColumn;
  r.dO0 = <usize>a.dOutput + begin * r.dORow + valueColumn;
  r.dv0 = <usize>a.dv + begin * r.dvRow + valueColumn;
  r.g0 = <usize>a.g + begin * r.gRow + gateColumn;
  r.g = r.g0;
  if (r.decay != HEAD) r.dg0 = <usize>a.dg + begin * r.dgRow + gateColumn;
  else r.dg0 = (n == 0 ? <usize>a.dg : <usize>a.dgParts + (<usize>((n - 1) * a.valueHeads) << 2)) + gateColumn;
  const channel = <usize>(n * a.valueHeads + head) * <usize>K << 2;
  const state = channel * <usize>V;
  r.initialState = a.flags & INITIAL_STATE ? <usize>a.initialState + state : 0;
  r.initialNormalizer = a.flags & INITIAL_NORMALIZER ? <usize>a.initialNormalizer + channel : 0;
  r.dFinalState = a.flags & FINAL_STATE ? <usize>a.dFinalState + state : 0;
  r.dFinalNormalizer = a.flags & FINAL_NORMALIZER ? <usize>a.dFinalNormalizer + channel : 0;
  r.dInitialState = a.flags & INITIAL_STATE_GRADIENT ? <usize>a.dInitialState + state : 0;
  r.dInitialNormalizer = a.flags & INITIAL_NORMALIZER_GRADIENT ? <usize>a.dInitialNormalizer + channel : 0;
}

/** The carried state and its gradient into scratch. */
function enter(r: Gradient): void {
  const carried = <usize>r.valueWidth << 2;
  setState(r, r.states);
  clear(r.state, <i32>(r.stateBytes >> 2));
  if (r.initialState) transposeBlock(r.keyWidth, r.valueWidth, r.initialState, carried, r.state, r.row);
  loadRows(r.normalizer, r.row, r.initialNormalizer, 0, 1, r.keyWidth);
  loadRows(r.stateGradient, r.stateRow, r.dFinalState, carried, r.keyWidth, r.valueWidth);
  loadRows(r.normalizerGradient, r.row, r.dFinalNormalizer, 0, 1, r.keyWidth);
  prepareHead(r);
}

function leave(r: Gradient): void {
  const carried = <usize>r.valueWidth << 2;
  if (r.dInitialState)
    storeRows(r.dInitialState, carried, r.stateGradient, r.stateRow, r.keyWidth, r.valueWidth, false);
  if (r.dInitialNormalizer) storeRow(r.dInitialNormalizer, r.normalizerGradient, r.keyWidth);
  if (r.decay == HEAD && r.flags & GATE_GRADIENT) store<f32>(r.dg0, <f32>r.gateTotal);
}

/** Brings the rows of a chunk into the caches, all heads' at once; those of queries where they are read too. */
function fetch(scratch: usize, count: i32, first: i32, queries: bool): void {
  const rows = min(recordAt(scratch, 0).size, recordAt(scratch, 0).length - first);
  const t = <usize>first;
  let seen: i32 = 0;
  for (let i: i32 = 0; i < count; i++) {
    const r = recordAt(scratch, i);
    seen |= touchRows(r.k0 + t * r.kRow, r.kRow, rows, r.keyWidth);
    seen |= touchRows(r.v0 + t * r.vRow, r.vRow, rows, r.valueWidth);
    if (r.decay == KEY) seen |= touchRows(r.g0 + t * r.gRow, r.gRow, rows, r.keyWidth);
    if (!queries) continue;
    seen |= touchRows(r.q0 + t * r.qRow, r.qRow, rows, r.keyWidth);
    seen |= touchRows(r.dO0 + t * r.dORow, r.dORow, rows, r.valueWidth);
  }
  store<i32>(recordAt(scratch, 0).turned, seen);
}

/** Without a gate's gradient no chunk needs S and R at once: dq on the way there, dk and dv on the way back. */
function scanTwice(scratch: usize, count: i32): void {
  const first = recordAt(scratch, 0);
  const chunks = (first.length + first.size - 1) / first.size;
  for (let index: i32 = 0; index < chunks; index++) {
    fetch(scratch, count, index * first.size, true);
    for (let i: i32 = 0; i < count; i++) {
      const r = recordAt(scratch, i);
      openBoth(r, index * r.size);
      queryPart(r);
      if (index + 1 < chunks) advance(r);
    }
  }
  for (let index = chunks - 1; index >= 0; index--) {
    fetch(scratch, count, index * first.size, true);
    for (let i: i32 = 0; i < count; i++) {
      const r = recordAt(scratch, i);
      openBoth(r, index * r.size);
      weightsOf(r);
      maskScores(r, r.weights, r.scoreRow, r.alpha, r.sigma, 0);
      keyPart(r);
      valuePart(r);
      retreat(r);
    }
  }
}

/** Walks from chunk to chunk; with `keep` every state is kept before its chunk and the last chunk is not walked. */
function walk(scratch: usize, count: i32, first: i32, chunks: i32, keep: bool): void {
  for (let index: i32 = 0; index < chunks; index++) {
    fetch(scratch, count, (first + index) * recordAt(scratch, 0).size, false);
    for (let i: i32 = 0; i < count; i++) {
      const r = recordAt(scratch, i);
      if (keep) memory.copy(r.local + <usize>index * r.stateBytes, r.state, r.stateBytes);
      if (keep && index + 1 == chunks) continue;
      openChunk(r, (first + index) * r.size);
      advance(r);
    }
  }
}

/** Everything about one chunk, from the state before it and the gradient behind it. */
function wholeChunk(r: Gradient, index: i32, state: usize): void {
  setState(r, state);
  openBoth(r, index * r.size);
  queryPart(r);
  keyPart(r);
  gatePart(r);
  valuePart(r);
  retreat(r);
  setState(r, r.states);
}

/** A gate's gradient needs S and R at once: every `every`-th state is kept and those between are computed again. */
function scanSegments(scratch: usize, count: i32): void {
  const record = recordAt(scratch, 0);
  const chunks = (record.length + record.size - 1) / record.size;
  const every = record.every;
  const last = max(chunks - 1, 0) / every;
  for (let segment: i32 = 0; segment < last; segment++) {
    for (let i: i32 = 0; i < count; i++) {
      const r = recordAt(scratch, i);
      memory.copy(r.kept + <usize>segment * r.stateBytes, r.state, r.stateBytes);
    }
    walk(scratch, count, segment * every, every, false);
  }
  for (let segment = last; segment >= 0; segment--) {
    const first = segment * every;
    const length = min(every, chunks - first);
    for (let i: i32 = 0; i < count && segment < last; i++) {
      const r = recordAt(scratch, i);
      memory.copy(r.state, r.kept + <usize>segment * r.stateBytes, r.stateBytes);
    }
    walk(scratch, count, first, length, true);
    for (let index = length - 1; index >= 0; index--) {
      fetch(scratch, count, (first + index) * record.size, true);
      for (let i: i32 = 0; i < count; i++) {
        const r = recordAt(scratch, i);
        wholeChunk(r, first + index, r.local + <usize>index * r.stateBytes);
      }
    }
  }
}

/** `count` value heads of one part, the `from`-th of its key heads' members first, side by side. */
function batch(a: GradientArguments, scratch: usize, n: i32, keyHead: i32, part: i32, from: i32, count: i32): void {
  const group = a.valueHeads / a.heads;
  const firstMember = part * group / a.parts;
  const members = (part + 1) * group / a.parts - firstMember;
  const sequence = <usize>a.cuSeqlens + (<usize>n << 2);
  const begin = a.flags & PACKED ? load<i32>(sequence) : n * a.time;
  for (let i: i32 = 0; i < count; i++) {
    const r = recordAt(scratch, i);
    const head = keyHead + (from + i) / members;
    const member = (from + i) % members;
    r.length = a.flags & PACKED ? load<i32>(sequence, 4) - begin : a.time;
    r.add = member != 0;
    r.gateTotal = 0;
    locateParts(a, r, <usize>begin, head, part);
    locate(a, r, n, head * group + firstMember + member, <usize>begin);
    enter(r);
  }
  if (a.flags & GATE_GRADIENT) scanSegments(scratch, count);
  else scanTwice(scratch, count);
  for (let i: i32 = 0; i < count; i++) leave(recordAt(scratch, i));
}

// args: see GradientArguments. One unit is a part of the value heads of `keyHeads` key heads of one sequence, of which
// `together` are walked side by side: their rows are neighbours in memory.
export function recurrence_addChunkwise_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<GradientArguments>(args);
  const group = a.valueHeads / a.heads;
  const blocks = a.heads / a.keyHeads;
  openGradient(a, scratch);
  for (let unit = begin; unit < end; unit++) {
    const part = unit % a.parts;
    const block = unit / a.parts;
    const members = (part + 1) * group / a.parts - part * group / a.parts;
    const total = a.keyHeads * members;
    for (let from: i32 = 0; from < total; from += a.together)
      batch(a, scratch, block / blocks, block % blocks * a.keyHeads, part, from, min(a.together, total - from));
  }
}

// args: total, parts, rows, width, stride, parts after the first. total[row] += every part's row. One unit is a row.
export function recurrence_addParts_sum(args: usize, begin: i32, end: i32, scratch: usize): void {
  const rows = intAt(args, 2);
  const width = intAt(args, 3);
  const stride = <usize>intAt(args, 4) << 2;
  const count = intAt(args, 5);
  const partBytes = <usize>rows * <usize>width << 2;
  for (let row = begin; row < end; row++) {
    const total = pointerAt(args, 0) + <usize>row * stride;
    let part = pointerAt(args, 1) + (<usize>row * <usize>width << 2);
    for (let p: i32 = 0; p < count; p++, part += partBytes)
      for (let j: i32 = 0; j < width; j += 4) {
        const at = <usize>j << 2;
        storeLive(total + at, f32x4.add(loadLive(total + at, width - j), loadLive(part + at, width - j)), width - j);
      }
  }
}
