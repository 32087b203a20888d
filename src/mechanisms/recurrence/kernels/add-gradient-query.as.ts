// dq of a chunk. With n = Sᵀq, d = scale z·q + eps and o = scale n / d: alpha = scale / d, and
// sigma = −scale (dO·scale n) / d² is the gradient that reaches z·q; without the normaliser alpha = scale.
import {
  gemmBlock, gemmLower, gemmLowerLeft, transposeBlock,
} from "../../../device/wasm/kernels/generated/tile.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { slopeRows } from "../../feature-maps/kernels/pointwise.as";
import { KEY, NONE, decayColumns, firstLanes, maskScores } from "./add-decay.as";
import { NORMALIZE } from "./add-forward.as";
import { GATE_GRADIENT, Gradient } from "./add-gradient.as";
import { keepProduct } from "./add-gradient-gate.as";
import { keyQueryGradients, keyScores } from "./add-key.as";
import { dot, scaleRows, storeRows, sumLanes, sumRows } from "./add-rows.as";

/** Scores of the chunk's rows on each other with their decay, times alpha. */
export function scoresOf(r: Gradient, alpha: usize): void {
  const rows = r.rows;
  if (r.decay == KEY) keyScores(r, r.q, r.k, r.scores, r.scoreRow, r.pairs);
  else {
    transposeBlock(rows, r.keyWidth, r.k, r.kStep, r.transposedK, r.scoreRow);
    gemmLower(rows, rows, r.keyWidth, r.q, r.qStep, 4, r.transposedK, r.scoreRow, r.scores, r.scoreRow, 0);
  }
  maskScores(r, r.scores, r.scoreRow, alpha, 0, 0);
}

/** dO·v of the chunk's rows on each other. */
export function weightsOf(r: Gradient): void {
  const rows = r.rows;
  const V = r.valueWidth;
  transposeBlock(rows, V, r.v, r.vStep, r.transposedV, r.scoreRow);
  gemmLower(rows, rows, V, r.dO, r.dOStep, 4, r.transposedV, r.scoreRow, r.weights, r.scoreRow, 0);
}

/** alpha and sigma of the chunk's rows from their scores, dO·v (in `weights`) and S dO (in `result`). */
function factors(r: Gradient): void {
  const width = r.keyWidth;
  scoresOf(r, r.scaled);
  scaleRows(r.decay, r.decayedQ, r.row, r.q, r.qStep, r.prefix, r.row, r.scaled, r.rows, width);
  for (let i: i32 = 0; i < r.rows; i++) {
    const p = r.scores + <usize>i * r.scoreRow;
    const w = r.weights + <usize>i * r.scoreRow;
    const row = r.decayedQ + <usize>i * r.row;
    let sum = i32x4.splat(0);
    let read = sum;
    for (let j: i32 = 0; j <= i; j += 4) {
      const at = <usize>j << 2;
      const x = v128.load(p + at);
      sum = f32x4.add(sum, x);
      read = fma(x, v128.and(v128.load(w + at), firstLanes(min(i - j + 1, 4))), read);
    }
    const d = sumLanes(sum) + dot(row, r.normalizer, width) + r.eps;
    const n = sumLanes(read) + dot(row, r.result + <usize>i * r.row, width);
    const inverse: f32 = d == 0 ? 0 : 1 / d;
    store<f32>(r.alpha + (<usize>i << 2), r.scale * inverse);
    store<f32>(r.sigma + (<usize>i << 2), -r.scale * n * inverse * inverse);
  }
}

/** result_i <- D_i ∘ (alpha_i result_i + sigma_i z): what the state before the chunk gives to dq. */
function carriedPart(r: Gradient): void {
  const one = f32x4.splat(1);
  for (let i: i32 = 0; i < r.rows; i++) {
    const at = <usize>i << 2;
    const a = v128.load_splat<f32>(r.alpha + at);
    const s = r.sigma ? v128.load_splat<f32>(r.sigma + at) : i32x4.splat(0);
    const perRow = r.decay == NONE || r.decay == KEY ? one : v128.load_splat<f32>(r.prefix + at);
    const row = r.result + <usize>i * r.row;
    const table = r.prefix + <usize>i * r.row;
    for (let j: usize = 0; j < <usize>r.keyWidth << 2; j += 16) {
      const x = fma(v128.load(row + j), a, f32x4.mul(v128.load(r.normalizer + j), s));
      v128.store(row + j, f32x4.mul(x, r.decay == KEY ? v128.load(table + j) : perRow));
    }
  }
}

/** result_i += diagonal_i other_i, what the gate's gradient leaves out. */
export function addDiagonal(r: Gradient, other: usize): void {
  for (let i: i32 = 0; i < r.rows; i++, other += r.row) {
    const row = r.result + <usize>i * r.row;
    const diagonal = v128.load_splat<f32>(r.diagonal + (<usize>i << 2));
    for (let j: usize = 0; j < <usize>r.keyWidth << 2; j += 16)
      v128.store(row + j, fma(diagonal, v128.load(other + j), v128.load(row + j)));
  }
}

/** dq of the open chunk; leaves the chunk's weights (gradients of its scores) for dk. */
export function queryPart(r: Gradient): void {
  const rows = r.rows;
  const K = r.keyWidth;
  const gated = r.flags & GATE_GRADIENT;
  weightsOf(r);
  gemmBlock(rows, K, r.valueWidth, r.dO, r.dOStep, 4, r.state, r.row, r.result, r.row, 0);
  if (r.flags & NORMALIZE) factors(r);
  carriedPart(r);
  maskScores(r, r.weights, r.scoreRow, r.alpha, r.sigma, gated ? r.diagonal : 0);
  if (r.decay == KEY) keyQueryGradients(r, r.k, r.weights, r.result);
  else gemmLowerLeft(rows, K, rows, r.weights, r.scoreRow, 4, r.k, r.kStep, r.result, r.row, 1);
  if (gated) {
    keepProduct(r, r.gateQ, r.q, r.result);
    addDiagonal(r, r.k);
  }
  slopeRows(r.map, r.result, r.row, r.q, r.qStep, rows, K);
  storeRows(r.dq, r.dqRow, r.result, r.row, rows, K, r.add);
}

/** The chunk's keys decayed to its end. */
export function decayedKeys(r: Gradient): usize {
  if (r.decay == NONE) return r.k;
  scaleRows(r.decay, r.decayedK, r.row, r.k, r.kStep, r.suffix, r.row, r.ones, r.rows, r.keyWidth);
  return r.decayedK;
}

/** The transposed state and the normaliser from the open chunk's beginning to its end. */
export function advance(r: Gradient): void {
  const keys = decayedKeys(r);
  const keyRow = r.decay == NONE ? r.kStep : r.row;
  decayColumns(r, r.state, r.valueWidth);
  gemmBlock(r.valueWidth, r.keyWidth, r.rows, r.v, 4, r.vStep, keys, keyRow, r.state, r.row, 1);
  if (!(r.flags & NORMALIZE)) return;
  decayColumns(r, r.normalizer, 1);
  sumRows(r.normalizer, keys, keyRow, r.rows, r.keyWidth);
}
