// The diagonal block of key decays: there E depends on the channel and sits inside the dot product, so rows are walked
// with running products. q, k and results are scratch rows of `chunk.row` bytes, zero behind the last channel.
import { fma } from "../../../device/wasm/kernels/simd.as";
import { Chunk } from "./add-decay.as";
import { dot, sumLanes } from "./add-rows.as";

/**
 * Adds to pairs[i] the products of q_i with k_j and k_{j+1}, decayed up to row i, over sixteen channels: two vectors of
 * partial sums for every i > j.
 */
function scoreColumns(chunk: Chunk, q: usize, k: usize, j: i32, column: usize, pairs: usize): void {
  const row = chunk.row;
  const first = <usize>j * row + column;
  let a = chunk.gates + first + row;
  k += first;
  q += first + row;
  let u0 = f32x4.mul(v128.load(k), v128.load(a));
  let u1 = f32x4.mul(v128.load(k, 16), v128.load(a, 16));
  let u2 = f32x4.mul(v128.load(k, 32), v128.load(a, 32));
  let u3 = f32x4.mul(v128.load(k, 48), v128.load(a, 48));
  k += row;
  let w0 = v128.load(k), w1 = v128.load(k, 16), w2 = v128.load(k, 32), w3 = v128.load(k, 48);
  for (let i = chunk.rows - j - 1; i > 0; i--) {
    a += row;
    let x = v128.load(q);
    let s = f32x4.mul(u0, x);
    let t = f32x4.mul(w0, x);
    x = v128.load(q, 16);
    s = fma(u1, x, s);
    t = fma(w1, x, t);
    x = v128.load(q, 32);
    s = fma(u2, x, s);
    t = fma(w2, x, t);
    x = v128.load(q, 48);
    s = fma(u3, x, s);
    t = fma(w3, x, t);
    v128.store(pairs, f32x4.add(v128.load(pairs), s));
    v128.store(pairs, f32x4.add(v128.load(pairs, 16), t), 16);
    x = v128.load(a);
    u0 = f32x4.mul(u0, x);
    w0 = f32x4.mul(w0, x);
    x = v128.load(a, 16);
    u1 = f32x4.mul(u1, x);
    w1 = f32x4.mul(w1, x);
    x = v128.load(a, 32);
    u2 = f32x4.mul(u2, x);
    w2 = f32x4.mul(w2, x);
    x = v128.load(a, 48);
    u3 = f32x4.mul(u3, x);
    w3 = f32x4.mul(w3, x);
    pairs += 32;
    q += row;
  }
}

/** P_ij = sum over the channels of q_i k_j E_ij for j <= i; `pairs` holds 32 bytes a row. */
export function keyScores(chunk: Chunk, q: usize, k: usize, p: usize, pRow: usize, pairs: usize): void {
  const rows = chunk.rows;
  for (let j: i32 = 0; j < rows; j++) {
    const row = <usize>j * chunk.row;
    store<f32>(p + <usize>j * pRow + (<usize>j << 2), dot(q + row, k + row, chunk.keyWidth));
  }
  for (let j: i32 = 0; j + 1 < rows; j += 2) {
    memory.fill(pairs, 0, <usize>(rows - j - 1) << 5);
    for (let column: usize = 0; column < chunk.row; column += 64) scoreColumns(chunk, q, k, j, column, pairs);
    let from = pairs;
    for (let i = j + 1; i < rows; i++, from += 32) {
      const to = p + <usize>i * pRow + (<usize>j << 2);
      store<f32>(to, sumLanes(v128.load(from)));
      if (i > j + 1) store<f32>(to, sumLanes(v128.load(from, 16)), 4);
    }
  }
}

/**
 * Two sums sum_s w_s src_s decayed by the gates that follow s, over sixteen channels, by Horner's rule: n common steps,
 * then one more for the long sum alone. Sums are added to the results; a short result at 0 is dropped.
 */
function horner(
  n: i32, a: usize, src: usize, step: usize, shortWeight: usize, longWeight: usize, weightStep: usize,
  shortResult: usize, longResult: usize,
): void {
  let x0 = i32x4.splat(0), x1 = x0, x2 = x0, x3 = x0, y0 = x0, y1 = x0, y2 = x0, y3 = x0;
  for (; n > 0; n--) {
    const s = v128.load_splat<f32>(shortWeight);
    const t = v128.load_splat<f32>(longWeight);
    let b = v128.load(a);
    let r = v128.load(src);
    x0 = fma(r, s, f32x4.mul(x0, b));
    y0 = fma(r, t, f32x4.mul(y0, b));
    b = v128.load(a, 16);
    r = v128.load(src, 16);
    x1 = fma(r, s, f32x4.mul(x1, b));
    y1 = fma(r, t, f32x4.mul(y1, b));
    b = v128.load(a, 32);
    r = v128.load(src, 32);
    x2 = fma(r, s, f32x4.mul(x2, b));
    y2 = fma(r, t, f32x4.mul(y2, b));
    b = v128.load(a, 48);
    r = v128.load(src, 48);
    x3 = fma(r, s, f32x4.mul(x3, b));
    y3 = fma(r, t, f32x4.mul(y3, b));
    a += step;
    src += step;
    shortWeight += weightStep;
    longWeight += weightStep;
  }
  const t = v128.load_splat<f32>(longWeight);
  y0 = fma(v128.load(src), t, f32x4.mul(y0, v128.load(a)));
  y1 = fma(v128.load(src, 16), t, f32x4.mul(y1, v128.load(a, 16)));
  y2 = fma(v128.load(src, 32), t, f32x4.mul(y2, v128.load(a, 32)));
  y3 = fma(v128.load(src, 48), t, f32x4.mul(y3, v128.load(a, 48)));
  if (shortResult) addFour(shortResult, x0, x1, x2, x3);
  addFour(longResult, y0, y1, y2, y3);
}

function addFour(p: usize, x0: v128, x1: v128, x2: v128, x3: v128): void {
  v128.store(p, f32x4.add(v128.load(p), x0));
  v128.store(p, f32x4.add(v128.load(p, 16), x1), 16);
  v128.store(p, f32x4.add(v128.load(p, 32), x2), 32);
  v128.store(p, f32x4.add(v128.load(p, 48), x3), 48);
}

/** dq_i += sum over j <= i of W_ij k_j E_ij. */
export function keyQueryGradients(chunk: Chunk, k: usize, w: usize, dq: usize): void {
  const rows = chunk.rows;
  for (let column: usize = 0; column < chunk.row; column += 64) {
    for (let i: i32 = 0; i < rows; i += 2) {
      const paired = i + 1 < rows;
      const short = w + <usize>i * chunk.scoreRow;
      const long = paired ? short + chunk.scoreRow : short;
      const result = dq + <usize>i * chunk.row + column;
      horner(
        paired ? i + 1 : i, chunk.gates + column, k + column, chunk.row, short, long, 4,
        paired ? result : 0, paired ? result + chunk.row : result,
      );
    }
  }
}

/** dk_j += sum over i >= j of W_ij q_i E_ij. */
export function keyKeyGradients(chunk: Chunk, q: usize, w: usize, dk: usize): void {
  const rows = chunk.rows;
  const last = <usize>(rows - 1) * chunk.row;
  for (let column: usize = 0; column < chunk.row; column += 64) {
    for (let j: i32 = 0; j < rows; j += 2) {
      const paired = j + 1 < rows;
      const weight = w + <usize>(rows - 1) * chunk.scoreRow + (<usize>j << 2);
      const result = dk + <usize>j * chunk.row + column;
      horner(
        rows - 1 - j, chunk.gates + last + chunk.row + column, q + last + column, 0 - chunk.row,
        paired ? weight + 4 : weight, weight, 0 - chunk.scoreRow,
        paired ? result + chunk.row : 0, result,
      );
    }
  }
}
