// dk and dv of a chunk, and the way of R, the gradient of the state, through it.
import {
  gemmBlock, gemmUpperLeft, transposeBlock,
} from "../../../device/wasm/kernels/generated/tile.as";
import { KEY, NONE, decayColumns, decayRows } from "./add-decay.as";
import { NORMALIZE } from "./add-forward.as";
import { GATE_GRADIENT, Gradient } from "./add-gradient.as";
import { keepProduct } from "./add-gradient-gate.as";
import { addDiagonal, decayedKeys, scoresOf, storeSloped } from "./add-gradient-query.as";
import { keyKeyGradients } from "./add-key.as";
import { addScaled, clear, scaleRows } from "./add-rows.as";

/** result_j = U_j ∘ (R v_j + dz): what lies behind the chunk gives to dk. */
function carriedPart(r: Gradient): void {
  const rows = r.rows;
  gemmBlock(
    r.keyWidth, rows, r.valueWidth, r.stateGradient, r.stateRow, 4, r.transposedV, r.scoreRow, r.turned, r.scoreRow, 0,
  );
  transposeBlock(r.keyWidth, rows, r.turned, r.scoreRow, r.result, r.row);
  const one = f32x4.splat(1);
  const normalized = r.flags & NORMALIZE;
  if (r.decay == NONE && !normalized) return;
  for (let i: i32 = 0; i < rows; i++) {
    const perRow = r.decay == NONE || r.decay == KEY ? one : v128.load_splat<f32>(r.suffix + (<usize>i << 2));
    const row = r.result + <usize>i * r.row;
    const table = r.suffix + <usize>i * r.row;
    for (let j: usize = 0; j < <usize>r.keyWidth << 2; j += 16) {
      let x = v128.load(row + j);
      if (normalized) x = f32x4.add(x, v128.load(r.normalizerGradient + j));
      v128.store(row + j, f32x4.mul(x, r.decay == KEY ? v128.load(table + j) : perRow));
    }
  }
}

/** Adds what the chunk's own rows give to dk; the gate's gradient wants that apart from the rest. */
function innerPart(r: Gradient, to: usize, mode: i32): void {
  if (r.decay == KEY) {
    if (mode == 0) clear(to, <i32>(<usize>r.rows * r.row >> 2));
    keyKeyGradients(r, r.q, r.weights, to);
  } else gemmUpperLeft(r.rows, r.keyWidth, r.rows, r.weights, 4, r.scoreRow, r.q, r.qStep, to, r.row, mode);
}

/** dk of the open chunk, from its weights. */
export function keyPart(r: Gradient): void {
  const rows = r.rows;
  carriedPart(r);
  if (r.flags & GATE_GRADIENT) {
    keepProduct(r, r.gateK, r.k, r.result);
    innerPart(r, r.inner, 0);
    keepProduct(r, r.gateInner, r.k, r.inner);
    addScaled(r.result, r.inner, 1, <i32>(<usize>rows * r.row >> 2));
    addDiagonal(r, r.q);
  } else innerPart(r, r.result, 1);
  storeSloped(r, r.dk, r.dkRow, r.k, r.kStep);
}

/** dv of the open chunk. */
export function valuePart(r: Gradient): void {
  const rows = r.rows;
  const V = r.valueWidth;
  scoresOf(r, r.alpha);
  gemmBlock(rows, V, r.keyWidth, decayedKeys(r), r.decay == NONE ? r.kStep : r.row, 4, r.stateGradient, r.stateRow, r.dv, r.dvRow, 0);
  gemmUpperLeft(rows, V, rows, r.scores, 4, r.scoreRow, r.dO, r.dOStep, r.dv, r.dvRow, 1);
}

/** R and dz from the open chunk's end to its beginning. */
export function retreat(r: Gradient): void {
  const rows = r.rows;
  const K = r.keyWidth;
  const normalized = r.flags & NORMALIZE;
  let queries = r.q, queryRow = r.qStep;
  if (r.decay != NONE) {
    scaleRows(r.decay, r.decayedQ, r.row, queries, queryRow, r.prefix, r.row, normalized ? r.ones : r.alpha, rows, K);
    queries = r.decayedQ;
    queryRow = r.row;
  }
  if (normalized) {
    decayColumns(r, r.normalizerGradient, 1);
    gemmBlock(1, K, rows, r.sigma, 0, 4, queries, queryRow, r.normalizerGradient, r.row, 1);
  }
  if (normalized || (r.decay == NONE && r.scale != 1)) {
    scaleRows(NONE, r.decayedQ, r.row, queries, queryRow, 0, 0, r.alpha, rows, K);
    queries = r.decayedQ;
    queryRow = r.row;
  }
  decayRows(r, r.stateGradient, r.stateRow);
  gemmBlock(K, r.valueWidth, rows, queries, 4, queryRow, r.dO, r.dOStep, r.stateGradient, r.stateRow, 1);
}
