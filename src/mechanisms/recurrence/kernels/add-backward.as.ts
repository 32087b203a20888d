// Chunkwise backward of the additive recurrence: nothing of the size T×K×V is kept. A unit walks the value
// heads of a group one after another, so that dq and dk of their common key head are summed in a fixed order; a group is
// cut in `parts` that leave their sums apart where there would be few units otherwise.
import { transposeBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { intAt, pointerAt } from "../../../device/wasm/kernels/simd.as";
import { HEAD, KEY, maskScores, prepareHead } from "./add-decay.as";
import { FINAL_NORMALIZER, FINAL_STATE, INITIAL_NORMALIZER, INITIAL_STATE, PACKED } from "./add-forward.as";
import {
  GATE_GRADIENT, Gradient, GradientArguments, INITIAL_NORMALIZER_GRADIENT, INITIAL_STATE_GRADIENT, openBoth, openChunk, openGradient,
} from "./add-gradient.as";
import { gatePart } from "./add-gradient-gate.as";
import { keyPart, retreat, valuePart } from "./add-gradient-key.as";
import { advance, queryPart, weightsOf } from "./add-gradient-query.as";
import { clear, loadLive, loadRows, storeLive, storeRow, storeRows } from "./add-rows.as";

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
  r.normalizer = r.state + <usize>r.valueWidth * r.row;
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

/** Without a gate's gradient no chunk needs S and R at once: dq on the way there, dk and dv on the way back. */
function scanTwice(r: Gradient): void {
  const chunks = (r.length + r.size - 1) / r.size;
  for (let index: i32 = 0; index < chunks; index++) {
    openBoth(r, index * r.size);
    queryPart(r);
    if (index + 1 < chunks) advance(r);
  }
  for (let index = chunks - 1; index >= 0; index--) {
    openBoth(r, index * r.size);
    weightsOf(r);
    maskScores(r, r.weights, r.scoreRow, r.alpha, r.sigma, 0);
    keyPart(r);
    valuePart(r);
    retreat(r);
  }
}

/** Walks the states of `count` chunks from `first`, keeping each one before its chunk. */
function recompute(r: Gradient, first: i32, count: i32): void {
  for (let index: i32 = 0; index < count; index++) {
    memory.copy(r.local + <usize>index * r.stateBytes, r.state, r.stateBytes);
    if (index + 1 == count) return;
    openChunk(r, (first + index) * r.size);
    advance(r);
  }
}

/** A gate's gradient needs S and R at once: every `every`-th state is kept and those between are computed again. */
function scanSegments(r: Gradient): void {
  const chunks = (r.length + r.size - 1) / r.size;
  const every = r.every;
  const state = r.state;
  const normalizer = r.normalizer;
  const last = (chunks - 1) / every;
  r.gateTotal = 0;
  for (let segment: i32 = 0; segment < last; segment++) {
    memory.copy(r.kept + <usize>segment * r.stateBytes, state, r.stateBytes);
    for (let index = segment * every; index < (segment + 1) * every; index++) {
      openChunk(r, index * r.size);
      advance(r);
    }
  }
  for (let segment = last; segment >= 0 && chunks > 0; segment--) {
    const first = segment * every;
    const count = min(every, chunks - first);
    if (segment < last) memory.copy(state, r.kept + <usize>segment * r.stateBytes, r.stateBytes);
    recompute(r, first, count);
    for (let index = count - 1; index >= 0; index--) {
      r.state = r.local + <usize>index * r.stateBytes;
      r.normalizer = r.state + (normalizer - state);
      openBoth(r, (first + index) * r.size);
      queryPart(r);
      keyPart(r);
      gatePart(r);
      valuePart(r);
      retreat(r);
    }
    r.state = state;
    r.normalizer = normalizer;
  }
}

// args: see GradientArguments. One unit is a part of the value heads of one key head of one sequence.
export function recurrence_addChunkwise_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<GradientArguments>(args);
  const r = openGradient(a, scratch);
  const group = a.valueHeads / a.heads;
  for (let unit = begin; unit < end; unit++) {
    const part = unit % a.parts;
    const keyHead = unit / a.parts % a.heads;
    const n = unit / a.parts / a.heads;
    const sequence = <usize>a.cuSeqlens + (<usize>n << 2);
    const first = a.flags & PACKED ? load<i32>(sequence) : n * a.time;
    r.length = a.flags & PACKED ? load<i32>(sequence, 4) - first : a.time;
    locateParts(a, r, <usize>first, keyHead, part);
    const from = part * group / a.parts;
    for (let member = from; member < (part + 1) * group / a.parts; member++) {
      r.add = member != from;
      locate(a, r, n, keyHead * group + member, <usize>first);
      enter(r);
      if (r.flags & GATE_GRADIENT) scanSegments(r);
      else scanTwice(r);
      leave(r);
    }
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
