// Token after token: decay the state, write, read. The recurrent form walks sequences, the step form one token for many
// rows of a slab of states.
import { exp4, expm14 } from "../../../device/wasm/kernels/math.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { mappedRows } from "../../feature-maps/kernels/pointwise.as";
import { HEAD, KEY, NONE } from "./add-decay.as";
import { ForwardArguments, MAP_SHIFT, NORMALIZE, enter, leave, locate, openForward } from "./add-forward.as";
import { loadTail, padded, storeTail, sumLanes } from "./add-rows.as";

/** Channels live in [0, width): S <- S·factor + (S and keep) with slow decays as S += expm1(g)·S. */
function tokenFactors(decay: i32, g: usize, width: i32, factor: usize, keep: usize): void {
  const limit = f32x4.splat(-0.5);
  for (let j: i32 = 0; j < width; j += 4, factor += 16, keep += 16) {
    let gate = i32x4.splat(0);
    if (decay == KEY) gate = width - j >= 4 ? v128.load(g + (<usize>j << 2)) : loadTail(g + (<usize>j << 2), width - j);
    else if (decay != NONE) gate = v128.load_splat<f32>(g);
    const slow = f32x4.gt(gate, limit);
    v128.store(factor, v128.bitselect(expm14(gate), exp4(gate), slow));
    v128.store(keep, slow);
  }
}

/** z <- decay z + k; returns z·q. */
function normalizerToken(width: i32, z: usize, q: usize, k: usize, factor: usize, keep: usize): f32 {
  let sum = i32x4.splat(0);
  let j: i32 = 0;
  for (; j + 4 <= width; j += 4) {
    const x = v128.load(z);
    const next = f32x4.add(fma(x, v128.load(factor), v128.and(x, v128.load(keep))), v128.load(k));
    v128.store(z, next);
    sum = fma(next, v128.load(q), sum);
    z += 16; q += 16; k += 16; factor += 16; keep += 16;
  }
  if (j < width) {
    const left = width - j;
    const x = loadTail(z, left);
    const next = f32x4.add(fma(x, v128.load(factor), v128.and(x, v128.load(keep))), loadTail(k, left));
    storeTail(z, next, left);
    sum = fma(next, loadTail(q, left), sum);
  }
  return sumLanes(sum);
}

/** Sixteen value columns of one token. */
function wideColumns(
  width: i32, state: usize, stateRow: usize, q: usize, k: usize, v: usize, o: usize, factor: usize, keep: usize, finish: v128,
): void {
  const v0 = v128.load(v), v1 = v128.load(v, 16), v2 = v128.load(v, 32), v3 = v128.load(v, 48);
  let o0 = i32x4.splat(0), o1 = o0, o2 = o0, o3 = o0;
  for (let c: i32 = 0; c < width; c++) {
    const f = v128.load_splat<f32>(factor);
    const m = v128.load_splat<i32>(keep);
    const write = v128.load_splat<f32>(k);
    const read = v128.load_splat<f32>(q);
    let x = v128.load(state);
    x = fma(write, v0, fma(x, f, v128.and(x, m)));
    v128.store(state, x);
    o0 = fma(read, x, o0);
    x = v128.load(state, 16);
    x = fma(write, v1, fma(x, f, v128.and(x, m)));
    v128.store(state, x, 16);
    o1 = fma(read, x, o1);
    x = v128.load(state, 32);
    x = fma(write, v2, fma(x, f, v128.and(x, m)));
    v128.store(state, x, 32);
    o2 = fma(read, x, o2);
    x = v128.load(state, 48);
    x = fma(write, v3, fma(x, f, v128.and(x, m)));
    v128.store(state, x, 48);
    o3 = fma(read, x, o3);
    state += stateRow; factor += 4; keep += 4; k += 4; q += 4;
  }
  v128.store(o, f32x4.mul(o0, finish));
  v128.store(o, f32x4.mul(o1, finish), 16);
  v128.store(o, f32x4.mul(o2, finish), 32);
  v128.store(o, f32x4.mul(o3, finish), 48);
}

/** Thirty-two value columns of one token of a state that does not decay: two cache lines of every row at a time. */
function lastingColumns(width: i32, state: usize, stateRow: usize, q: usize, k: usize, v: usize, o: usize, finish: v128): void {
  let o0 = i32x4.splat(0), o1 = o0, o2 = o0, o3 = o0, o4 = o0, o5 = o0, o6 = o0, o7 = o0;
  for (let c: i32 = 0; c < width; c++) {
    const write = v128.load_splat<f32>(k);
    const read = v128.load_splat<f32>(q);
    let x: v128;
    x = fma(write, v128.load(v), v128.load(state));
    v128.store(state, x);
    o0 = fma(read, x, o0);
    x = fma(write, v128.load(v, 16), v128.load(state, 16));
    v128.store(state, x, 16);
    o1 = fma(read, x, o1);
    x = fma(write, v128.load(v, 32), v128.load(state, 32));
    v128.store(state, x, 32);
    o2 = fma(read, x, o2);
    x = fma(write, v128.load(v, 48), v128.load(state, 48));
    v128.store(state, x, 48);
    o3 = fma(read, x, o3);
    x = fma(write, v128.load(v, 64), v128.load(state, 64));
    v128.store(state, x, 64);
    o4 = fma(read, x, o4);
    x = fma(write, v128.load(v, 80), v128.load(state, 80));
    v128.store(state, x, 80);
    o5 = fma(read, x, o5);
    x = fma(write, v128.load(v, 96), v128.load(state, 96));
    v128.store(state, x, 96);
    o6 = fma(read, x, o6);
    x = fma(write, v128.load(v, 112), v128.load(state, 112));
    v128.store(state, x, 112);
    o7 = fma(read, x, o7);
    state += stateRow; k += 4; q += 4;
  }
  v128.store(o, f32x4.mul(o0, finish));
  v128.store(o, f32x4.mul(o1, finish), 16);
  v128.store(o, f32x4.mul(o2, finish), 32);
  v128.store(o, f32x4.mul(o3, finish), 48);
  v128.store(o, f32x4.mul(o4, finish), 64);
  v128.store(o, f32x4.mul(o5, finish), 80);
  v128.store(o, f32x4.mul(o6, finish), 96);
  v128.store(o, f32x4.mul(o7, finish), 112);
}

/** Up to four value columns of one token. */
function narrowColumns(
  width: i32, live: i32, state: usize, stateRow: usize, q: usize, k: usize, v: usize, o: usize, factor: usize, keep: usize, finish: v128,
): void {
  const whole = live >= 4;
  const v0 = whole ? v128.load(v) : loadTail(v, live);
  let o0 = i32x4.splat(0);
  for (let c: i32 = 0; c < width; c++) {
    let x = whole ? v128.load(state) : loadTail(state, live);
    x = fma(x, v128.load_splat<f32>(factor), v128.and(x, v128.load_splat<i32>(keep)));
    x = fma(v128.load_splat<f32>(k), v0, x);
    if (whole) v128.store(state, x);
    else storeTail(state, x, live);
    o0 = fma(v128.load_splat<f32>(q), x, o0);
    state += stateRow; factor += 4; keep += 4; k += 4; q += 4;
  }
  if (whole) v128.store(o, f32x4.mul(o0, finish));
  else storeTail(o, f32x4.mul(o0, finish), live);
}

/** One token through the columns of a state; `finish` is what the read is multiplied by. */
function token(
  decay: i32, width: i32, columns: i32, state: usize, stateRow: usize, q: usize, k: usize, v: usize, o: usize, factor: usize, keep: usize, finish: f32,
): void {
  const wide = f32x4.splat(finish);
  let j: i32 = 0;
  if (decay == NONE) {
    for (; j + 32 <= columns; j += 32) {
      const at = <usize>j << 2;
      lastingColumns(width, state + at, stateRow, q, k, v + at, o + at, wide);
    }
  }
  for (; j + 16 <= columns; j += 16) {
    const at = <usize>j << 2;
    wideColumns(width, state + at, stateRow, q, k, v + at, o + at, factor, keep, wide);
  }
  for (; j < columns; j += 4) {
    const at = <usize>j << 2;
    narrowColumns(width, columns - j, state + at, stateRow, q, k, v + at, o + at, factor, keep, wide);
  }
}

/** scale, or with a normaliser scale / (scale · z·q + eps); 0 where that would divide by 0. */
function finishOf(scale: f32, denominator: f32): f32 {
  return denominator == 0 ? 0 : scale / denominator;
}

// args: see ForwardArguments; `chunk` is not looked at. One unit is `columns` value columns of one value head of one
// sequence.
export function recurrence_addRecurrent_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<ForwardArguments>(args);
  const f = openForward(a, 1, 1, scratch);
  const blocks = (a.valueWidth + a.columns - 1) / a.columns;
  for (let unit = begin; unit < end; unit++) {
    const head = unit / blocks;
    const rows = locate(a, f, head / a.valueHeads, head % a.valueHeads, (unit % blocks) * a.columns);
    enter(f);
    if (f.decay == NONE || f.decay == HEAD) tokenFactors(f.decay, f.g, f.keyWidth, f.factor, f.keep);
    for (let t: i32 = 0; t < rows; t++) {
      if (f.decay > HEAD) tokenFactors(f.decay, f.g, f.keyWidth, f.factor, f.keep);
      const q = mappedRows(f.map, f.q, 0, 1, f.keyWidth, f.plainQ, f.row);
      const k = mappedRows(f.map, f.k, 0, 1, f.keyWidth, f.plainK, f.row);
      let finish = f.scale;
      if (f.flags & NORMALIZE)
        finish = finishOf(f.scale, f.scale * normalizerToken(f.keyWidth, f.normalizer, q, k, f.factor, f.keep) + f.eps);
      token(f.decay, f.keyWidth, f.columns, f.state, f.stateRow, q, k, f.v, f.o, f.factor, f.keep, finish);
      f.q += f.qRow;
      f.k += f.kRow;
      f.v += f.vRow;
      f.o += f.oRow;
      f.g += f.gRow;
    }
    leave(f);
  }
}

@unmanaged
class StepArguments {
  q: u32; k: u32; v: u32; g: u32; slots: u32; states: u32; normalizers: u32; o: u32;
  flags: i32; rows: i32; heads: i32; valueHeads: i32; keyWidth: i32; valueWidth: i32;
  qStride: i32; kStride: i32; vStride: i32; gStride: i32; oStride: i32;
  scale: f32; eps: f32;
}

/** One row's token through one value head of its slot. */
function stepUnit(a: StepArguments, row: i32, head: i32, scratch: usize): void {
  const decay = a.flags & 3;
  const K = a.keyWidth;
  const V = a.valueWidth;
  const line = <usize>padded(K) << 2;
  const factor = scratch, keep = factor + line, mappedQ = keep + line, mappedK = mappedQ + line;
  const map = a.flags >> MAP_SHIFT;
  const keyHead = <usize>(head / (a.valueHeads / a.heads) * K) << 2;
  const q = mappedRows(map, <usize>a.q + (<usize>(row * a.qStride) << 2) + keyHead, 0, 1, K, mappedQ, line);
  const k = mappedRows(map, <usize>a.k + (<usize>(row * a.kStride) << 2) + keyHead, 0, 1, K, mappedK, line);
  const v = <usize>a.v + (<usize>(row * a.vStride + head * V) << 2);
  const o = <usize>a.o + (<usize>(row * a.oStride + head * V) << 2);
  const gateRow = decay > HEAD ? row * a.gStride : 0;
  const g = <usize>a.g + (<usize>(gateRow + (decay == KEY ? head * K : head)) << 2);
  const slot = load<i32>(<usize>a.slots + (<usize>row << 2));
  const channel = <usize>(slot * a.valueHeads + head) * <usize>K;
  tokenFactors(decay, g, K, factor, keep);
  let finish = a.scale;
  if (a.flags & NORMALIZE)
    finish = finishOf(a.scale, a.scale * normalizerToken(K, <usize>a.normalizers + (channel << 2), q, k, factor, keep) + a.eps);
  token(decay, K, V, <usize>a.states + ((channel * <usize>V) << 2), <usize>V << 2, q, k, v, o, factor, keep, finish);
}

// args: q, k, v, g, slots, states, normalizers, o, then see StepArguments. One unit is one value head of one row; rows
// have different slots.
export function recurrence_addStep_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<StepArguments>(args);
  for (let unit = begin; unit < end; unit++) stepUnit(a, unit / a.valueHeads, unit % a.valueHeads, scratch);
}
