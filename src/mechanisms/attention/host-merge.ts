/** Parts joined by their log-sum-exp, in plain loops. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { dot } from "./host-job.ts";

/** Outputs `[rows,V]` and log-sum-exp `[rows]` of one part. */
interface HostPart {
  readonly output: TypedArray;
  readonly lse: TypedArray;
}

function stackOf(
  output: TypedArray,
  lse: TypedArray,
  rows: number,
  width: number,
  parts: number,
): HostPart[] {
  return Array.from({ length: parts }, (_, n) => ({
    output: output.subarray(n * rows * width, (n + 1) * rows * width),
    lse: lse.subarray(n * rows, (n + 1) * rows),
  }));
}

/** What every part of a row counts for before the division by their sum; all 0 where all are empty. */
function weightsOf(
  parts: readonly HostPart[],
  row: number,
): { weights: number[]; sum: number; largest: number } {
  const largest = parts.reduce((a, part) => Math.max(a, part.lse[row]!), Number.NEGATIVE_INFINITY);
  const empty = largest === Number.NEGATIVE_INFINITY;
  const weights = parts.map((part) => (empty ? 0 : Math.exp(part.lse[row]! - largest)));
  return { weights, largest, sum: weights.reduce((a, b) => a + b, 0) };
}

/** Merges rows; row (b·H + h)·T + t of the parts becomes row (b·T + t)·H + h. */
function merge(
  parts: readonly HostPart[],
  to: HostPart,
  rows: number,
  width: number,
  [heads, time] = [1, rows],
): void {
  for (let row = 0; row < rows; row++) {
    const [line, t] = [Math.floor(row / time), row % time];
    const merged = (Math.floor(line / heads) * time + t) * heads + (line % heads);
    const { weights, largest, sum } = weightsOf(parts, row);
    const empty = largest === Number.NEGATIVE_INFINITY;
    to.lse[merged] = empty ? largest : largest + Math.log(sum);
    for (let c = 0; c < width; c++) {
      let value = 0;
      for (const [n, part] of parts.entries())
        if (weights[n] !== 0) value += weights[n]! * part.output[row * width + c]!;
      to.output[merged * width + c] = empty ? 0 : value / sum;
    }
  }
}

/** What the gradient of every part reads. */
interface Joined extends HostPart {
  readonly dOutput: TypedArray;
  readonly dLse: TypedArray | undefined;
}

function grade(
  parts: readonly HostPart[],
  n: number,
  joined: Joined,
  to: HostPart,
  rows: number,
  width: number,
): void {
  const part = parts[n]!;
  for (let row = 0; row < rows; row++) {
    const at = row * width;
    const { weights, sum } = weightsOf(parts, row);
    const weight = weights[n] === 0 ? 0 : weights[n]! / sum;
    for (let c = at; c < at + width; c++) to.output[c] = weight === 0 ? 0 : weight * joined.dOutput[c]!;
    if (weight === 0) to.lse[row] = 0;
    else {
      const own = dot(joined.dOutput, at, part.output, at, width);
      const all = dot(joined.dOutput, at, joined.output, at, width);
      to.lse[row] = weight * (own - all + (joined.dLse?.[row] ?? 0));
    }
  }
}

/** Forward over a stack. */
export const mergeHost: HostKernel = (buffers, ints) => {
  const [outputs, lses, output, lse] = buffers as TypedArray[];
  const [rows, width, parts, heads, time] = ints as [number, number, number, number, number];
  const stack = stackOf(outputs!, lses!, rows, width, parts);
  merge(stack, { output: output!, lse: lse! }, rows, width, [heads, time]);
};

/** Forward over two parts. */
export const joinHost: HostKernel = (buffers, [rows, width]) => {
  const [output1, lse1, output2, lse2, output, lse] = buffers as TypedArray[];
  const parts = [
    { output: output1!, lse: lse1! },
    { output: output2!, lse: lse2! },
  ];
  merge(parts, { output: output!, lse: lse! }, rows!, width!);
};

/** Backward over two parts. */
export const joinBackwardHost: HostKernel = (buffers, [rows, width, hasDLse]) => {
  const [output1, lse1, output2, lse2, output, lse, dOutput, dLse, ...to] = buffers as TypedArray[];
  const joined = { output: output!, lse: lse!, dOutput: dOutput!, dLse: hasDLse === 0 ? undefined : dLse };
  const pair = [
    { output: output1!, lse: lse1! },
    { output: output2!, lse: lse2! },
  ];
  grade(pair, 0, joined, { output: to[0]!, lse: to[1]! }, rows!, width!);
  grade(pair, 1, joined, { output: to[2]!, lse: to[3]! }, rows!, width!);
};
