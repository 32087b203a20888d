// dq of a chunk. With n = Sᵀq, d = scale z·q + eps and o = scale n / d: alpha = scale / d, and
// sigma = −scale (dO·scale n) / d² is the gradient that reaches z·q; without the normaliser alpha = scale. dO·n is q·(S dO),
// and S dO is what dq is made of.
import {
  gemmBlock, gemmLower, gemmLowerLeft, transposeBlock,
} from "../../../device/wasm/kernels/generated/tile.as";
import { fma } from "../../../device/wasm/kernels/simd.as";
import { slopeRows } from "../../feature-maps/kernels/pointwise.as";
import { KEY, NONE, decayColumns, maskScores } from "./add-decay.as";
import { NORMALIZE } from "./add-forward.as";
import { GATE_GRADIENT, Gradient } from "./add-gradient.as";
import { keepProduct } from "./add-gradient-gate.as";
import { keyQueryGradients, keyScores } from "./add-key.as";
import { dot, loadRow, scaleRows, storeRows, sumRows } from "./add-rows.as";

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

/** z ← exp(g_i) ∘ z, a row of keys; nothing without a decay. */
function decayNormalizer(r: Gradient, z: usize, i: i32): void {
  if (r.decay == NONE) return;
  const segment = r.segments + <usize>i * r.scoreRow + (<usize>(i - 1) << 2);
  const perRow = r.decay == KEY ? i32x4.splat(0) : v128.load_splat<f32>(i == 0 ? r.prefix : segment);
  const gates = r.gates + <usize>i * r.row;
  for (let j: usize = 0; j < r.row; j += 16)
    v128.store(z + j, f32x4.mul(v128.load(z + j), r.decay == KEY ? v128.load(gates + j) : perRow));
}

/**
 * result_i ← alpha_i result_i + sigma_i z_i from result_i = S_i dO_i, and both factors: n dO is q·result. Where the
 * diagonal is kept apart neither result nor z holds the row's own key.
 */
function normalize(r: Gradient, apart: bool): void {
  const width = r.keyWidth;
  const z = r.decayedQ;
  loadRow(z, r.normalizer, <i32>(r.row >> 2));
  for (let i: i32 = 0; i < r.rows; i++) {
    const at = <usize>i << 2;
    const q = r.q + <usize>i * r.qStep;
    const k = r.k + <usize>i * r.kStep;
    const row = r.result + <usize>i * r.row;
    decayNormalizer(r, z, i);
    if (!apart) sumRows(z, k, 0, 1, width);
    const own = apart ? dot(q, k, width) : 0;
    const d = r.scale * (dot(q, z, width) + own) + r.eps;
    const n = dot(q, row, width) + (apart ? own * load<f32>(r.diagonal + at) : 0);
    const inverse: f32 = d == 0 ? 0 : 1 / d;
    const alpha = r.scale * inverse;
    const sigma = -alpha * alpha * n;
    store<f32>(r.alpha + at, alpha);
    store<f32>(r.sigma + at, sigma);
    const wide = f32x4.splat(alpha);
    const passed = f32x4.splat(sigma);
    for (let j: usize = 0; j < <usize>width << 2; j += 16)
      v128.store(row + j, fma(v128.load(row + j), wide, f32x4.mul(v128.load(z + j), passed)));
    if (apart) sumRows(z, k, 0, 1, width);
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

/** dq of the open chunk; with a gate's gradient leaves the chunk's weights (gradients of its scores) for dk. */
export function queryPart(r: Gradient): void {
  const rows = r.rows;
  const K = r.keyWidth;
  const gated = (r.flags & GATE_GRADIENT) != 0;
  const normalized = (r.flags & NORMALIZE) != 0;
  const alpha = normalized ? r.ones : r.alpha;
  weightsOf(r);
  maskScores(r, r.weights, r.scoreRow, alpha, 0, gated ? r.diagonal : 0);
  gemmBlock(rows, K, r.valueWidth, r.dO, r.dOStep, 4, r.state, r.row, r.result, r.row, 0);
  if (r.decay != NONE || (!normalized && r.scale != 1))
    scaleRows(r.decay, r.result, r.row, r.result, r.row, r.prefix, r.row, alpha, rows, K);
  if (r.decay == KEY) keyQueryGradients(r, r.k, r.weights, r.result);
  else gemmLowerLeft(rows, K, rows, r.weights, r.scoreRow, 4, r.k, r.kStep, r.result, r.row, 1);
  if (normalized) normalize(r, gated);
  if (gated) {
    if (normalized) {
      weightsOf(r);
      maskScores(r, r.weights, r.scoreRow, r.alpha, r.sigma, r.diagonal);
    }
    keepProduct(r, r.gateQ, r.q, r.result);
    addDiagonal(r, r.k);
  }
  storeSloped(r, r.dq, r.dqRow, r.q, r.qStep);
}

/** The result times the slopes of the map at rows `y`, to rows of an operand or added to them. */
export function storeSloped(r: Gradient, to: usize, toRow: usize, y: usize, yRow: usize): void {
  const rows = r.rows;
  const K = r.keyWidth;
  if (r.add) {
    slopeRows(r.map, r.result, r.row, r.result, r.row, y, yRow, rows, K);
    storeRows(to, toRow, r.result, r.row, rows, K, true);
  } else slopeRows(r.map, to, toRow, r.result, r.row, y, yRow, rows, K);
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
