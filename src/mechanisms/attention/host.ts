/** Attention in plain loops, one query after another: what the tiled kernels must agree with. */
import type { HostKernel } from "../../device/device.ts";
import {
  addScaled,
  dot,
  type HostJob,
  type HostRow,
  keysOf,
  readJob,
  rowAt,
  rowsOf,
  scoresOf,
} from "./host-job.ts";

/** Outputs, log-sum-exp and, where wanted, the largest score of every query. */
export const forwardHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  for (const row of rowsOf(job)) {
    const keys = keysOf(job, row);
    const scores = scoresOf(job, row, keys);
    const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const weights = scores.map((score) => Math.exp(score - largest));
    const sum = weights.reduce((a, b) => a + b, 0);
    job.lse[row.statistic] = keys.length === 0 ? Number.NEGATIVE_INFINITY : largest + Math.log(sum);
    if (job.hasRowMax !== 0) job.rowMax[row.statistic] = largest;
    const at = rowAt(job.strides.output, row.batch, row.token, row.head);
    for (let c = 0; c < job.valueWidth; c++) {
      let value = 0;
      for (const [n, j] of keys.entries()) value += weights[n]! * job.v[valueAt(job, row, j) + c]!;
      job.output[at + c] = keys.length === 0 ? 0 : value / sum;
    }
  }
};

/** Outputs and the whole matrix of weights. */
export const matrixHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  job.weights.fill(0, 0, job.batch * job.queryHeads * job.time * job.keyTime);
  for (const row of rowsOf(job)) {
    const keys = keysOf(job, row);
    const scores = scoresOf(job, row, keys);
    const largest = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const sum = scores.reduce((a, score) => a + Math.exp(score - largest), 0);
    const at = rowAt(job.strides.output, row.batch, row.token, row.head);
    job.output.fill(0, at, at + job.valueWidth);
    const to = ((row.batch * job.queryHeads + row.head) * job.time + row.token) * job.keyTime + row.keyBegin;
    for (const [n, j] of keys.entries()) {
      const weight = Math.exp(scores[n]! - largest) / sum;
      job.weights[to + j] = weight;
      addScaled(job.output, at, job.v, valueAt(job, row, j), job.valueWidth, weight);
    }
  }
};

/** delta = Σ dO·O − dLse of every query. */
export const deltaHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  for (const row of rowsOf(job)) {
    const o = rowAt(job.strides.output, row.batch, row.token, row.head);
    const dO = rowAt(job.strides.dOutput, row.batch, row.token, row.head);
    const sum = dot(job.output, o, job.dOutput, dO, job.valueWidth);
    job.delta[row.statistic] = job.hasDLse === 0 ? sum : sum - job.dLse[row.statistic]!;
  }
};

/** Weights and gradients of the scores of one query. */
interface RowGradient {
  readonly row: HostRow;
  readonly keys: readonly number[];
  readonly weights: readonly number[];
  readonly dScores: readonly number[];
}

function* rowGradients(job: HostJob): Generator<RowGradient> {
  for (const row of rowsOf(job)) {
    const keys = keysOf(job, row);
    const scores = scoresOf(job, row, keys);
    const dO = rowAt(job.strides.dOutput, row.batch, row.token, row.head);
    // Not from the saved lse, which float32 has rounded while scores here are float64.
    const most = scores.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const total = scores.reduce((a, score) => a + Math.exp(score - most), 0);
    const weights = scores.map((score) => Math.exp(score - most) / total);
    const delta = job.delta[row.statistic]!;
    // The first of the largest scores: where several are equal any of them is a subgradient.
    const largest = scores.reduce((best, score, n) => (score > scores[best]! ? n : best), 0);
    const dScores = keys.map((j, n) => {
      const dP = dot(job.dOutput, dO, job.v, valueAt(job, row, j), job.valueWidth);
      const share = weights[n]! * (dP - delta);
      return job.hasRowMax !== 0 && n === largest ? share + job.dRowMax[row.statistic]! : share;
    });
    yield { row, keys, weights, dScores };
  }
}

/** Gradients of the queries. */
export const queriesHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  for (const { row, keys, dScores } of rowGradients(job)) {
    const dQ = rowAt(job.strides.dQ, row.batch, row.token, row.head);
    for (let c = 0; c < job.keyWidth; c++) {
      let value = 0;
      for (const [n, j] of keys.entries()) value += dScores[n]! * job.k[keyAt(job, row, j) + c]!;
      job.dQ[dQ + c] = job.scale * value;
    }
  }
};

/** Gradients of keys and values. */
export const keysHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  clearKeys(job);
  for (const { row, keys, weights, dScores } of rowGradients(job)) {
    const q = rowAt(job.strides.q, row.batch, row.token, row.head);
    const dO = rowAt(job.strides.dOutput, row.batch, row.token, row.head);
    for (const [n, j] of keys.entries()) {
      const dK = rowAt(job.strides.dK, row.batch, row.keyBegin + j, row.keyHead);
      const dV = rowAt(job.strides.dV, row.batch, row.keyBegin + j, row.keyHead);
      addScaled(job.dK, dK, job.q, q, job.keyWidth, job.scale * dScores[n]!);
      addScaled(job.dV, dV, job.dOutput, dO, job.valueWidth, weights[n]!);
    }
  }
};

/** All of them. */
export const backwardHost: HostKernel = (buffers, ints, floats) => {
  queriesHost(buffers, ints, floats);
  keysHost(buffers, ints, floats);
};

/** The gradient of the bias, summed over the axes that it shares. */
export const biasHost: HostKernel = (buffers, ints, floats) => {
  const job = readJob(buffers, ints, floats);
  const { batch, queryHeads, time, keyTime } = job;
  const rows = (job.biasBatch === 0 ? 1 : batch) * (job.biasHead === 0 ? 1 : queryHeads);
  job.dBias.fill(0, 0, rows * time * keyTime);
  for (const { row, keys, dScores } of rowGradients(job)) {
    const at = row.batch * job.dBiasBatch + row.head * job.dBiasHead + row.token * keyTime + row.keyBegin;
    for (const [n, j] of keys.entries()) job.dBias[at + j]! += dScores[n]!;
  }
};

function keyAt(job: HostJob, row: HostRow, j: number): number {
  return rowAt(job.strides.k, row.slot, row.keyBegin + j, row.keyHead);
}

function valueAt(job: HostJob, row: HostRow, j: number): number {
  return rowAt(job.strides.v, row.slot, row.keyBegin + j, row.keyHead);
}

function clearKeys(job: HostJob): void {
  for (let batch = 0; batch < job.batch; batch++)
    for (let j = 0; j < job.keyTime; j++)
      for (let head = 0; head < job.keyHeads; head++) {
        const dK = rowAt(job.strides.dK, batch, j, head);
        const dV = rowAt(job.strides.dV, batch, j, head);
        job.dK.fill(0, dK, dK + job.keyWidth);
        job.dV.fill(0, dV, dV + job.valueWidth);
      }
}
