import { full, type Tensor } from "../../autograd/tensor.ts";
import { add, multiply } from "../../ops/arithmetic/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { permute } from "../../ops/permute/index.ts";
import { mean } from "../../ops/reduce/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { scale as times } from "../../ops/scale/index.ts";
import { shortConv } from "../../ops/short-conv/index.ts";
import { softmax } from "../../ops/softmax/index.ts";
import { slice } from "../../ops/split/index.ts";
import type { Attend, FullInputs } from "../attention/full-forms.ts";
import { pseudoInverse } from "./pseudo-inverse.ts";

/** How many landmarks, and how their matrix is inverted. */
export interface NystromChoices {
  readonly landmarks: number;
  readonly iterations: number;
  readonly scale: number;
  /** `[H,W]`, W odd: a depthwise convolution of the values over time, added. */
  readonly convolution?: Tensor | undefined;
}

/**
 * Means of m segments that cover the tokens `[B,T,H,K]` → `[B,m,H,K]`. Where m does not divide T the first segments are
 * one token shorter than the others: nothing is padded, nothing left out.
 */
export function segmentMeans(x: Tensor, m: number): Tensor {
  const [B, T, H, K] = x.shape as [number, number, number, number];
  const short = Math.floor(T / m);
  const shortCount = (short + 1) * m - T;
  const means = (from: number, count: number, length: number): Tensor =>
    mean(reshape(slice(x, 1, from, from + count * length), [B, count, length, H, K]), { axes: 2 });
  if (shortCount === m) return means(0, m, short);
  return concat([means(0, shortCount, short), means(shortCount * short, m - shortCount, short + 1)], 1);
}

/** softmax(Q K̃ᵀ) · softmax(Q̃ K̃ᵀ)⁺ · softmax(Q̃ Kᵀ) V, every product with a side of m. */
export function attendLandmarks({ q, k, v }: FullInputs, choices: NystromChoices, attend: Attend): Tensor {
  const { landmarks: m, iterations, scale, convolution } = choices;
  const call = { scale, causal: false };
  const [T, Tk] = [q.shape[1]!, k.shape[1]!];
  let output: Tensor;
  if (m === T && m === Tk) output = attend({ q, k, v }, call);
  else {
    const queries = segmentMeans(q, m);
    const keys = segmentMeans(k, m);
    const headsFirst = (x: Tensor): Tensor => permute(x, [0, 2, 1, 3]);
    const scores = matmul(headsFirst(queries), headsFirst(keys), { transposeB: true });
    const inverse = pseudoInverse(softmax(times(scores, scale)), iterations);
    const seen = headsFirst(attend({ q: queries, k, v }, call));
    output = attend({ q, k: keys, v: headsFirst(matmul(inverse, seen)) }, call);
  }
  return convolution === undefined ? output : add(output, convolved(v, convolution, T));
}

/** Σ_w weight[h,w] · v[t + w − (W−1)/2] for T tokens: the causal convolution, read (W−1)/2 tokens later. */
function convolved(v: Tensor, weight: Tensor, T: number): Tensor {
  const [B, Tk, H, V] = v.shape as [number, number, number, number];
  const W = weight.shape[1]!;
  const ahead = (W - 1) / 2;
  const zeros = full(v.device, [B, Math.max(0, T - Tk) + ahead, H * V], 0, { dtype: v.dtype });
  const x = concat([reshape(v, [B, Tk, H * V]), zeros], 1);
  const ones = full(v.device, [1, V, 1], 1, { dtype: v.dtype });
  const channels = reshape(multiply(reshape(weight, [H, 1, W]), ones), [H * V, W]);
  const { y } = shortConv({ x, weight: channels }, {});
  return reshape(slice(y, 1, ahead, ahead + T), [B, T, H, V]);
}
