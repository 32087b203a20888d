/** Attention inside groups in plain loops, one query after another. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { addScaled, dot } from "../attention/host-job.ts";

/** The score of a token with itself: counts where there is nothing else. */
const lowest = -1e30;

const operandNames = [
  ...(["q", "k", "v", "order", "groups", "output", "lse", "dOutput", "dQ", "dK", "dV"] as const),
];
const integerNames = [
  ...(["B", "T", "H", "K", "V", "R", "group", "groupCount", "causal"] as const),
  ...(["qBatch", "qToken", "qHead", "kBatch", "kToken", "kHead", "vBatch", "vToken", "vHead"] as const),
];

type Job = Readonly<Record<(typeof operandNames)[number], TypedArray>> &
  Readonly<Record<(typeof integerNames)[number], number>> & { readonly scale: number };

function readJob(...[buffers, ints, floats]: Parameters<HostKernel>): Job {
  return {
    ...Object.fromEntries(operandNames.map((name, i) => [name, buffers[i]])),
    ...Object.fromEntries(integerNames.map((name, i) => [name, ints[i]])),
    scale: floats[0],
  } as Job;
}

/** One query: token `t` of a head, as a row of packed tensors; where token 0 of the head lies in its operands. */
interface Row {
  readonly t: number;
  readonly row: number;
  readonly q: number;
  readonly k: number;
  readonly v: number;
  /** Where the groups of its head begin, and its first row. */
  readonly groups: number;
  readonly first: number;
  /** The row where heads lie apart. */
  readonly apart: number;
}

function* rowsOf({ B, T, H, R, ...job }: Job): Generator<Row> {
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++)
      for (let t = 0; t < T; t++) {
        const q = b * job.qBatch + h * job.qHead;
        const k = b * job.kBatch + h * job.kHead;
        const v = b * job.vBatch + h * job.vHead;
        const first = b * T * H + h;
        const apart = (b * H + h) * T + t;
        yield { t, row: first + t * H, q, k, v, groups: (b * H + h) * R * T, first, apart };
      }
}

/** The first round in which a query meets a token, −1 where it may not see it or none. */
function meets({ T, R, groups, causal }: Job, { t, groups: from }: Row, j: number): number {
  if (causal !== 0 && j > t) return -1;
  for (let round = 0; round < R; round++) {
    const apart = groups[from + round * T + t]! - groups[from + round * T + j]!;
    if (apart === 0 || apart === 1) return round;
  }
  return -1;
}

/** What a query meets first in a round, or in any. */
function keysOf(job: Job, row: Row, round?: number): number[] {
  return Array.from({ length: job.T }, (_, j) => j).filter((j) => {
    const met = meets(job, row, j);
    return round === undefined ? met >= 0 : met === round;
  });
}

/** Scores of a query, their largest, weights and the sum of those. */
function weighed(job: Job, row: Row, keys: readonly number[]) {
  const q = row.q + row.t * job.qToken;
  const scores = keys.map((j) => {
    if (j === row.t) return lowest;
    return job.scale * dot(job.q, q, job.k, row.k + j * job.kToken, job.K);
  });
  const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const weights = scores.map((score) => Math.exp(score - largest));
  return { largest, weights, sum: weights.reduce((a, b) => a + b, 0) };
}

/** Outputs and log-sum-exp of every round. */
export const groupsForwardHost: HostKernel = (...given) => {
  const job = readJob(...given);
  const { output, lse, v, V, R } = job;
  for (let round = 0; round < R; round++)
    for (const row of rowsOf(job)) {
      const keys = keysOf(job, row, round);
      const { largest, weights, sum } = weighed(job, row, keys);
      const at = R === 1 ? row.row : round * job.B * job.H * job.T + row.apart;
      lse[at] = keys.length === 0 ? Number.NEGATIVE_INFINITY : largest + Math.log(sum);
      output.fill(0, at * V, (at + 1) * V);
      for (const [n, j] of keys.entries())
        addScaled(output, at * V, v, row.v + j * job.vToken, V, weights[n]! / sum);
    }
};

/** Gradients of queries, keys and values. */
export const groupsBackwardHost: HostKernel = (...given) => {
  const job = readJob(...given);
  const { q, k, v, output, dOutput, dQ, dK, dV, B, T, H, K, V, scale } = job;
  for (const gradient of [dQ, dK]) gradient.fill(0, 0, B * T * H * K);
  dV.fill(0, 0, B * T * H * V);
  for (const row of rowsOf(job)) {
    const keys = keysOf(job, row);
    const { weights, sum } = weighed(job, row, keys);
    const delta = dot(dOutput, row.row * V, output, row.row * V, V);
    for (const [n, j] of keys.entries()) {
      const weight = weights[n]! / sum;
      const to = row.first + j * H;
      const dWeight = dot(dOutput, row.row * V, v, row.v + j * job.vToken, V);
      addScaled(dV, to * V, dOutput, row.row * V, V, weight);
      // The score of a token with itself is a constant.
      if (j === row.t) continue;
      const dScore = scale * weight * (dWeight - delta);
      addScaled(dQ, row.row * K, k, row.k + j * job.kToken, K, dScore);
      addScaled(dK, to * K, q, row.q + row.t * job.qToken, K, dScore);
    }
  }
};
