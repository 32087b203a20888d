import { Job, rowsAt } from "./job.as";
import { finishQueryGradient, gradeTile, openGradient, Gradient } from "./gradient.as";
import { openTile, openTileOf, Tile } from "./tile.as";

/** What a pass adds up. */
const QUERIES: i32 = 1;
const KEYS: i32 = 2;
const BIAS: i32 = 4;

// All gradients in one pass over the tiles. One unit is one key head of one batch row.
export function attention_tiled_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const gradient = openGradient(job, scratch);
  const tile = gradient.tile;
  const group = job.queryHeads / job.keyHeads;
  for (let unit = begin; unit < end; unit++) {
    const batch = unit / job.keyHeads;
    const keyHead = unit % job.keyHeads;
    clearKeys(job, batch, keyHead, 0, job.keyTime);
    for (let head = keyHead * group; head < (keyHead + 1) * group; head++) {
      for (let at = 0; at < job.tilesPerRow; at++) {
        if (!openTileOf(job, tile, batch, head, at)) break;
        gradeTile(job, gradient, 0, tile.keys, QUERIES | KEYS);
        finishQueryGradient(job, gradient);
      }
    }
  }
}

// The gradient of the queries alone. One unit is one query tile of one head.
export function attention_tiledQueries_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const gradient = openGradient(job, scratch);
  const tile = gradient.tile;
  for (let unit = begin; unit < end; unit++) {
    if (!openTile(job, tile, unit)) continue;
    gradeTile(job, gradient, 0, tile.keys, QUERIES);
    finishQueryGradient(job, gradient);
  }
}

// The gradients of keys and values alone. One unit is `blockKeys` keys of one key head of one batch row.
export function attention_tiledKeys_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const gradient = openGradient(job, scratch);
  const tile = gradient.tile;
  const group = job.queryHeads / job.keyHeads;
  const blocks = (job.keyTime + job.blockKeys - 1) / job.blockKeys;
  for (let unit = begin; unit < end; unit++) {
    const row = unit / blocks;
    const batch = row / job.keyHeads;
    const keyHead = row % job.keyHeads;
    const from = unit % blocks * job.blockKeys;
    const to = min(from + job.blockKeys, job.keyTime);
    clearKeys(job, batch, keyHead, from, to);
    for (let head = keyHead * group; head < (keyHead + 1) * group; head++) {
      for (let at = 0; at < job.tilesPerRow; at++) {
        if (!openTileOf(job, tile, batch, head, at)) break;
        gradeTile(job, gradient, from - tile.keyBegin, to - tile.keyBegin, KEYS);
      }
    }
  }
}

function clearKeys(job: Job, batch: i32, head: i32, from: i32, to: i32): void {
  for (let j = from; j < to; j++) {
    memory.fill(rowsAt(job.dK, job.dKBatch, job.dKToken, job.dKHead, batch, j, head), 0, <usize>job.keyWidth << 2);
    memory.fill(rowsAt(job.dV, job.dVBatch, job.dVToken, job.dVHead, batch, j, head), 0, <usize>job.valueWidth << 2);
  }
}

// The gradient of the bias. One unit is one query tile of each of the bias's own heads and batch rows; it takes the
// heads and batch rows that share those numbers one after another.
export function attention_bias_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const gradient = openGradient(job, scratch);
  const tile = gradient.tile;
  const heads = job.dBiasHead == 0 ? 1 : job.queryHeads;
  const sharedHeads = job.queryHeads / heads;
  const sharedRows = job.dBiasBatch == 0 ? job.batch : 1;
  for (let unit = begin; unit < end; unit++) {
    const row = unit / job.tilesPerRow;
    const at = unit % job.tilesPerRow;
    for (let b = 0; b < sharedRows; b++) {
      for (let h = 0; h < sharedHeads; h++) {
        const batch = row / heads + b, head = row % heads + h;
        if (!openTileOf(job, tile, batch, head, at)) break;
        const first = <usize>batch * job.dBiasBatch + <usize>head * job.dBiasHead + <usize>(tile.begin + tile.first) * job.keyTime;
        gradient.dBias = job.dBias + (first << 2);
        if (b == 0 && h == 0) memory.fill(gradient.dBias, 0, <usize>(tile.count * job.keyTime) << 2);
        gradient.dBias += <usize>tile.keyBegin << 2;
        gradeTile(job, gradient, 0, tile.keys, BIAS);
      }
    }
  }
}
