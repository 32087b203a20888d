/** Decoding in plain loops: blocks of keys, then the blocks joined. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { dot } from "./host-job.ts";

const integerNames = [
  ...(["keyTime", "queryHeads", "keyHeads", "keyWidth", "valueWidth", "window", "maskBytes"] as const),
  ...(["cached", "blockKeys", "blocks", "qBatch", "qHead", "kBatch", "kToken", "kHead"] as const),
  ...(["vBatch", "vToken", "vHead", "outputBatch", "outputHead", "batch"] as const),
];

type DecodeIntegers = Readonly<Record<(typeof integerNames)[number], number>>;

function readIntegers(ints: readonly number[]): DecodeIntegers {
  return Object.fromEntries(integerNames.map((name, i) => [name, ints[i]])) as DecodeIntegers;
}

/** Keys of a block of a batch row that the query sees. */
function keysOf(job: DecodeIntegers, buffers: readonly TypedArray[], batch: number, block: number): number[] {
  const [, , , mask, , lengths] = buffers;
  const length = job.cached === 0 ? job.keyTime : lengths![batch]!;
  const keys: number[] = [];
  const from = block * job.blockKeys;
  for (let j = from; j < Math.min(from + job.blockKeys, length); j++) {
    if (job.window > 0 && j < length - job.window) continue;
    if (job.maskBytes === 0 || mask![batch * job.keyTime + j] !== 0) keys.push(j);
  }
  return keys;
}

/** Maximum, sum and unnormalised outputs of every block and head. */
export const decodeHost: HostKernel = (buffers, ints, floats) => {
  const job = readIntegers(ints);
  const [q, k, v, , slots, , partials] = buffers as TypedArray[];
  const { queryHeads, keyHeads, keyWidth, valueWidth } = job;
  for (let batch = 0; batch < job.batch; batch++)
    for (let block = 0; block < job.blocks; block++)
      for (let head = 0; head < queryHeads; head++) {
        const slot = job.cached === 0 ? batch : slots![batch]!;
        const keyHead = Math.floor(head / (queryHeads / keyHeads));
        const keys = keysOf(job, buffers, batch, block);
        const scores = keys.map((j) => {
          const at = slot * job.kBatch + j * job.kToken + keyHead * job.kHead;
          return floats[0]! * dot(q!, batch * job.qBatch + head * job.qHead, k!, at, keyWidth);
        });
        const largest = scores.reduce((a, b) => Math.max(a, b), -1e30);
        const to = ((batch * job.blocks + block) * queryHeads + head) * (valueWidth + 2);
        partials!.fill(0, to, to + valueWidth + 2);
        partials![to] = largest;
        for (const [n, j] of keys.entries()) {
          const weight = Math.exp(scores[n]! - largest);
          const at = slot * job.vBatch + j * job.vToken + keyHead * job.vHead;
          partials![to + 1]! += weight;
          for (let c = 0; c < valueWidth; c++) partials![to + 2 + c]! += weight * v![at + c]!;
        }
      }
};

/** Outputs and log-sum-exp from the blocks. */
export const decodeJoinHost: HostKernel = (buffers, ints) => {
  const job = readIntegers(ints);
  const [, , , , , , partials, output, lse] = buffers as TypedArray[];
  const { queryHeads, valueWidth, blocks } = job;
  for (let unit = 0; unit < job.batch * queryHeads; unit++) {
    const batch = Math.floor(unit / queryHeads);
    const head = unit % queryHeads;
    const rows = Array.from(
      { length: blocks },
      (_, n) => ((batch * blocks + n) * queryHeads + head) * (valueWidth + 2),
    );
    const largest = rows.reduce((a, at) => Math.max(a, partials![at]!), -1e30);
    const weights = rows.map((at) => Math.exp(partials![at]! - largest));
    const sum = rows.reduce((a, at, n) => a + weights[n]! * partials![at + 1]!, 0);
    const to = batch * job.outputBatch + head * job.outputHead;
    for (let c = 0; c < valueWidth; c++) {
      const value = rows.reduce((a, at, n) => a + weights[n]! * partials![at + 2 + c]!, 0);
      output![to + c] = sum === 0 ? 0 : value / sum;
    }
    lse![unit] = sum === 0 ? Number.NEGATIVE_INFINITY : largest + Math.log(sum);
  }
};
