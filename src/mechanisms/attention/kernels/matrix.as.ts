// Attention with its whole matrix of weights in memory.
import { gemmBlock } from "../../../device/wasm/kernels/generated/tile.as";
import { finiteRows } from "../../../device/wasm/kernels/finite.as";
import { exp1, exp4, storeExp8 } from "../../../device/wasm/kernels/math.as";
import { maxRun } from "../../../device/wasm/kernels/rows.as";
import { Job, rowsAt } from "./job.as";
import { clear, keyAllowed, keyBegin, keyEnd, openTile, packTransposed, padded, seesAll, Tile, TILE_BYTES } from "./tile.as";

// One unit is one query tile of one head.
export function attention_matrix_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const tile = changetype<Tile>(scratch);
  const keysT = scratch + TILE_BYTES;
  const values = keysT + <usize>job.keyWidth * padded(job.tileKeys);
  for (let unit = begin; unit < end; unit++) {
    if (!openTile(job, tile, unit)) continue;
    const row = <usize>(tile.batch * job.queryHeads + tile.head) * job.time + tile.begin + tile.first;
    const weights = job.weights + (row * job.keyTime << 2);
    // Scores are written over all keys of the sequence: of a packed row the others stay 0.
    if (tile.keys < job.keyTime) memory.fill(weights, 0, <usize>tile.count * job.keyTime << 2);
    const first = weights + (<usize>tile.keyBegin << 2);
    scoreAll(job, tile, first, keysT);
    for (let i = 0; i < tile.count; i++) weighRow(job, tile, i, first + (<usize>i * job.keyTime << 2));
    addAll(job, tile, first, values);
  }
}

/** Scores of every query against every key of the sequence. */
function scoreAll(job: Job, tile: Tile, weights: usize, keysT: usize): void {
  const q = rowsAt(job.q, job.qBatch, job.qToken, job.qHead, tile.batch, tile.begin + tile.first, tile.head);
  const wide = padded(job.tileKeys);
  for (let from = 0; from < tile.keys; from += job.tileKeys) {
    const keys = min(job.tileKeys, tile.keys - from);
    packTransposed(keys, keys + 3 & ~3, job.keyWidth, tile.k + <usize>(from * job.kToken << 2), <usize>job.kToken << 2, keysT, wide, job.scale);
    gemmBlock(tile.count, keys, job.keyWidth, q, <usize>job.qToken << 2, 4, keysT, wide, weights + (<usize>from << 2), <usize>job.keyTime << 2, 0);
  }
}

/** Scores of one query become weights that sum to 1; keys it does not see get 0. */
function weighRow(job: Job, tile: Tile, i: i32, row: usize): void {
  const first = keyBegin(job, tile, i), last = keyEnd(job, tile, i);
  const bias = tile.bias + (<usize>i * job.biasRow << 2);
  if (job.hasBias || job.maskBytes != 0) {
    for (let j = first; j < last; j++) {
      const at = row + (<usize>j << 2);
      let s = load<f32>(at);
      if (job.hasBias) s += load<f32>(bias + (<usize>j << 2));
      if (job.maskBytes != 0 && !keyAllowed(job, tile, j)) s = -Infinity;
      store<f32>(at, s);
    }
  }
  const largest = maxRun(row + (<usize>first << 2), max(0, last - first));
  clear(row, min(first, tile.keys));
  clear(row + (<usize>last << 2), tile.keys - last);
  if (largest == -Infinity) {
    clear(row, tile.keys);
    return;
  }
  divide(row + (<usize>first << 2), last - first, exponentials(row + (<usize>first << 2), last - first, largest));
}

/** exp(score - largest) in place; returns their sum. */
function exponentials(row: usize, n: i32, largest: f32): f32 {
  const shift = f32x4.splat(largest);
  let wide = f32x4.splat(0);
  let j: i32 = 0;
  for (; j + 8 <= n; j += 8) {
    const at = row + (<usize>j << 2);
    storeExp8(at, f32x4.sub(v128.load(at), shift), f32x4.sub(v128.load(at, 16), shift));
    wide = f32x4.add(f32x4.add(wide, v128.load(at)), v128.load(at, 16));
  }
  for (; j + 4 <= n; j += 4) {
    const at = row + (<usize>j << 2);
    v128.store(at, exp4(f32x4.sub(v128.load(at), shift)));
    wide = f32x4.add(wide, v128.load(at));
  }
  let sum = f32x4.extract_lane(wide, 0) + f32x4.extract_lane(wide, 1) + (f32x4.extract_lane(wide, 2) + f32x4.extract_lane(wide, 3));
  for (; j < n; j++) {
    const at = row + (<usize>j << 2);
    store<f32>(at, exp1(load<f32>(at) - largest));
    sum += load<f32>(at);
  }
  return sum;
}

function divide(row: usize, n: i32, sum: f32): void {
  const share: f32 = 1 / sum;
  const wide = f32x4.splat(share);
  let j: i32 = 0;
  for (; j + 4 <= n; j += 4) {
    const at = row + (<usize>j << 2);
    v128.store(at, f32x4.mul(v128.load(at), wide));
  }
  for (; j < n; j++) store<f32>(row + (<usize>j << 2), load<f32>(row + (<usize>j << 2)) * share);
}

/** Outputs: the weights times all values; rows of hidden keys count as zeros, whatever they hold. */
function addAll(job: Job, tile: Tile, weights: usize, values: usize): void {
  const o = rowsAt(job.output, job.outputBatch, job.outputToken, job.outputHead, tile.batch, tile.begin + tile.first, tile.head);
  const row = padded(job.valueWidth);
  for (let i = 0; i < tile.count && tile.keys <= 0; i++) clear(o + (<usize>i * job.outputToken << 2), job.valueWidth);
  for (let from = 0; from < tile.keys; from += job.tileKeys) {
    const keys = min(job.tileKeys, tile.keys - from);
    let vRow = <usize>job.vToken << 2;
    let v = tile.v + <usize>from * vRow;
    if (job.maskBytes != 0) {
      for (let j = 0; j < keys; j++) {
        if (keyAllowed(job, tile, from + j)) memory.copy(values + <usize>j * row, v + <usize>j * vRow, <usize>job.valueWidth << 2);
        else clear(values + <usize>j * row, job.valueWidth);
      }
      v = values;
      vRow = row;
    }
    const mode = from > 0 ? 1 : 0;
    const rows = weights + (<usize>from << 2);
    if (seesAll(job, tile, 0, tile.count - 1, from, from + keys) || finiteRows(v, vRow, keys, job.valueWidth))
      gemmBlock(tile.count, job.valueWidth, keys, rows, <usize>job.keyTime << 2, 4, v, vRow, o, <usize>job.outputToken << 2, mode);
    else addSeen(job, tile, rows, v, vRow, o, from, from + keys, mode);
  }
}

/** The same sums query after query, over the keys that each sees: 0 times a value may be no 0. */
function addSeen(job: Job, tile: Tile, weights: usize, v: usize, vRow: usize, o: usize, from: i32, to: i32, mode: i32): void {
  for (let i = 0; i < tile.count; i++) {
    const first = min(to, max(from, keyBegin(job, tile, i)));
    const last = max(first, min(to, keyEnd(job, tile, i)));
    const row = weights + (<usize>(i * job.keyTime + first - from) << 2);
    gemmBlock(1, job.valueWidth, last - first, row, 0, 4, v + <usize>(first - from) * vRow, vRow, o + (<usize>(i * job.outputToken) << 2), 0, mode);
  }
}
