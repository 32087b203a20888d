import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Below, a logistic is narrower than any pixel can tell: log scales are cut there. */
export const leastLogScale = -7;

/** Half the width of a bin on [−1, 1]. */
const half = 1 / 255;

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** What a logistic says of one value: its log-probability and the slopes along mean and log scale. */
interface Bin {
  readonly logP: number;
  readonly dMean: number;
  readonly dLogScale: number;
}

/**
 * log(σ(a) − σ(b)) = log σ(a) + log σ(−b) + log(1 − e^(b−a)), a and b the bin's edges in units of the scale; the bins of
 * 0 and 255 reach to infinity.
 */
export function binOf(value: number, mean: number, givenLogScale: number): Bin {
  const logScale = Math.max(leastLogScale, givenLogScale);
  const inverse = Math.exp(-logScale);
  const x = value / 127.5 - 1 - mean;
  const a = (x + half) * inverse;
  const b = (x - half) * inverse;
  const d = 2 * half * inverse;
  const isFirst = value === 0;
  const isLast = value === 255;
  const above = isLast ? 0 : sigmoid(-a);
  const below = isFirst ? 0 : sigmoid(b);
  let logP = 0;
  if (!isLast) logP -= softplus(-a);
  if (!isFirst) logP -= softplus(b);
  const isInner = !isFirst && !isLast;
  if (isInner) logP += Math.log(-Math.expm1(-d));
  const width = isInner ? d / Math.expm1(d) : 0;
  const dLogScale = givenLogScale < leastLogScale ? 0 : b * below - a * above - width;
  return { logP, dMean: inverse * (below - above), dLogScale };
}

function logSum(values: readonly number[]): number {
  const top = values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  return top + Math.log(values.reduce((sum, value) => sum + Math.exp(value - top), 0));
}

function rowOf(x: TypedArray, at: number, M: number, value: number) {
  const logits = Array.from({ length: M }, (_, i) => x[at + i]!);
  const bins = logits.map((_, i) => binOf(value, x[at + M + i]!, x[at + 2 * M + i]!));
  const joint = logits.map((logit, i) => logit + bins[i]!.logP);
  return { logits, bins, joint };
}

/** Negative log-likelihood of every row. */
export const rowsHost: HostKernel = (buffers, ints) => {
  const [x, values, nats] = buffers as [TypedArray, TypedArray, TypedArray];
  const [N, M, stride] = ints as [number, number, number];
  for (let row = 0; row < N; row++) {
    const { logits, joint } = rowOf(x, row * stride, M, values[row]!);
    nats[row] = logSum(logits) - logSum(joint);
  }
};

/** Logits: softmax − posterior; means and log scales: −posterior times their slopes; all times the incoming gradient. */
export const backwardHost: HostKernel = (buffers, ints) => {
  const [x, values, dNats, dx] = buffers as [TypedArray, TypedArray, TypedArray, TypedArray];
  const [N, M, stride] = ints as [number, number, number];
  for (let row = 0; row < N; row++) {
    const { logits, bins, joint } = rowOf(x, row * stride, M, values[row]!);
    const [all, seen] = [logSum(logits), logSum(joint)];
    const incoming = dNats[row]!;
    for (let i = 0; i < M; i++) {
      const posterior = Math.exp(joint[i]! - seen);
      const at = row * 3 * M + i;
      dx[at] = incoming * (Math.exp(logits[i]! - all) - posterior);
      dx[at + M] = -incoming * posterior * bins[i]!.dMean;
      dx[at + 2 * M] = -incoming * posterior * bins[i]!.dLogScale;
    }
  }
};
