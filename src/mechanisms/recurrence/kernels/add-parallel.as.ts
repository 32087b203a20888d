// The T×T form: every pair of rows on its own, nothing carried between rows. Slow, and as independent of the other forms
// as can be.
import { exp4 } from "../../../device/wasm/kernels/math.as";
import { KEY, NONE } from "./add-decay.as";
import { Forward, ForwardArguments, NORMALIZE, locate, openForward } from "./add-forward.as";
import { addScaled, clear, dot, loadRow, loadRows, loadTail, padded, storeRow, storeRows } from "./add-rows.as";

/** line += gates of a row, factor = exp(line), over padded channels. */
function extend(f: Forward, g: usize, line: usize, factor: usize): void {
  const width = f.keyWidth;
  for (let j: i32 = 0; j < width; j += 4) {
    const at = <usize>j << 2;
    const gate = f.decay != KEY ? v128.load_splat<f32>(g) : width - j >= 4 ? v128.load(g + at) : loadTail(g + at, width - j);
    const sum = f32x4.add(v128.load(line + at), gate);
    v128.store(line + at, sum);
    v128.store(factor + at, exp4(sum));
  }
}

/** dst = src ∘ factor over padded channels. */
function product(dst: usize, src: usize, factor: usize, width: i32): void {
  for (let j: usize = 0; j < <usize>padded(width) << 2; j += 16)
    v128.store(dst + j, f32x4.mul(v128.load(src + j), v128.load(factor + j)));
}

/** Row i of the output from rows 0 to i; rows of the record start at the sequence's first. */
function parallelRow(f: Forward, i: i32): void {
  const width = f.keyWidth;
  const columns = padded(f.columns);
  const query = f.reads, weighted = f.decayedK, line = f.plainQ, factor = f.plainK;
  const row = f.valueLine, sum = f.state;
  loadRow(query, f.q + <usize>i * f.qRow, width);
  for (let j: usize = 0; j < f.row; j += 4) store<f32>(query + j, load<f32>(query + j) * f.scale);
  clear(line, padded(width));
  clear(sum, columns);
  memory.copy(weighted, query, f.row);
  let denominator = f.eps;
  for (let j = i; j >= 0; j--) {
    const p = dot(f.k + <usize>j * f.kRow, weighted, width);
    denominator += p;
    loadRow(row, f.v + <usize>j * f.vRow, f.columns);
    addScaled(sum, row, p, columns);
    if (f.decay == NONE) continue;
    extend(f, f.g + <usize>j * f.gRow, line, factor);
    product(weighted, query, factor, width);
  }
  if (f.initialState) {
    for (let c: i32 = 0; c < width; c++) {
      loadRow(row, f.initialState + <usize>c * f.carriedRow, f.columns);
      addScaled(sum, row, load<f32>(weighted + (<usize>c << 2)), columns);
    }
  }
  if (f.initialNormalizer) denominator += dot(f.initialNormalizer, weighted, width);
  if (f.flags & NORMALIZE) {
    const finish: f32 = denominator == 0 ? 0 : 1 / denominator;
    for (let j: i32 = 0; j < columns; j++) {
      const at = sum + (<usize>j << 2);
      store<f32>(at, load<f32>(at) * finish);
    }
  }
  storeRow(f.o + <usize>i * f.oRow, sum, f.columns);
}

/** The final state as one sum over the rows, from the last to the first. */
function parallelState(f: Forward, rows: i32): void {
  const width = f.keyWidth;
  const columns = padded(f.columns);
  const key = f.reads, line = f.plainQ, factor = f.plainK, row = f.valueLine;
  loadRows(f.state, f.stateRow, 0, 0, width, f.columns);
  clear(f.normalizer, padded(width));
  clear(line, padded(width));
  for (let c: usize = 0; c < f.row; c += 4) store<f32>(factor + c, 1);
  for (let j = rows - 1; j >= 0; j--) {
    loadRow(key, f.k + <usize>j * f.kRow, width);
    product(key, key, factor, width);
    loadRow(row, f.v + <usize>j * f.vRow, f.columns);
    for (let c: i32 = 0; c < width; c++)
      addScaled(f.state + <usize>c * f.stateRow, row, load<f32>(key + (<usize>c << 2)), columns);
    addScaled(f.normalizer, key, 1, padded(width));
    if (f.decay != NONE) extend(f, f.g + <usize>j * f.gRow, line, factor);
  }
  for (let c: i32 = 0; c < width && f.initialState != 0; c++) {
    loadRow(row, f.initialState + <usize>c * f.carriedRow, f.columns);
    addScaled(f.state + <usize>c * f.stateRow, row, load<f32>(factor + (<usize>c << 2)), columns);
  }
  if (f.initialNormalizer) {
    loadRow(key, f.initialNormalizer, width);
    product(key, key, factor, width);
    addScaled(f.normalizer, key, 1, padded(width));
  }
  if (f.finalState) storeRows(f.finalState, f.carriedRow, f.state, f.stateRow, width, f.columns, false);
  if (f.finalNormalizer) storeRow(f.finalNormalizer, f.normalizer, width);
}

// args: see ForwardArguments; `chunk` is not looked at. One unit is `columns` value columns of one value head of one
// sequence.
export function recurrence_addParallel_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const a = changetype<ForwardArguments>(args);
  const f = openForward(a, 1, 1, scratch);
  const blocks = (a.valueWidth + a.columns - 1) / a.columns;
  for (let unit = begin; unit < end; unit++) {
    const head = unit / blocks;
    const rows = locate(a, f, head / a.valueHeads, head % a.valueHeads, (unit % blocks) * a.columns);
    for (let i: i32 = 0; i < rows; i++) parallelRow(f, i);
    if (f.finalState != 0 || f.finalNormalizer != 0) parallelState(f, rows);
  }
}
