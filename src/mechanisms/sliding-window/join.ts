/** A window of softmax and linear attention over what lies before it, as one attention. */
import { full, type Tensor } from "../../autograd/tensor.ts";
import { exp } from "../../ops/activation/index.ts";
import { add, divide, multiply, subtract } from "../../ops/arithmetic/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { scale as affine } from "../../ops/scale/index.ts";
import { slice, split } from "../../ops/split/index.ts";
import { attention } from "../attention/attention-op.ts";
import { type RecurrenceRule, runRule, type SequenceForm } from "../recurrence/rule.ts";
import { delayed } from "./delay.ts";

/** Linear attention without decay and normaliser: the sums themselves. */
export const sumsRule: RecurrenceRule = { decay: "none", write: "add", normalize: false, scale: 1 };

/** How the two parts count. */
export interface Join {
  /** `joint`: one denominator for both; `gated`: each with its own, weighed by a gate. */
  readonly kind: "joint" | "gated";
  /** `[HQ]`, 1 where absent. */
  readonly windowFactor?: Tensor | undefined;
  readonly linearFactor?: Tensor | undefined;
  /** `[B,T,HQ]`, the share of the window. */
  readonly gate?: Tensor | undefined;
  /** Added to the denominator of the linear part where it has its own. */
  readonly eps: number;
}

/** The exact part: output `[B,T,HQ,V]`, log-sum-exp and largest score `[B,T,HQ]`. */
export interface Near {
  readonly output: Tensor;
  readonly lse: Tensor;
  readonly rowMax?: Tensor | undefined;
}

/** The linear part: Σ φ(q)·φ(k) v `[B,T,HQ,V]` and Σ φ(q)·φ(k) `[B,T,HQ]`. */
export interface Far {
  readonly sum: Tensor;
  readonly total: Tensor;
}

const overValues = (x: Tensor): Tensor => reshape(x, [...x.shape, 1]);

/**
 * joint: (w e^{lse−m} o + l Σ) / (w e^{lse−m} + l total), m the largest score of the window;
 * gated: g o + (1 − g) Σ / (total + eps).
 */
export function join(near: Near | undefined, { sum, total }: Far, how: Join): Tensor {
  if (how.kind === "gated") {
    const gate = how.gate!;
    const linear = multiply(sum, overValues(divide(affine(gate, -1, 1), affine(total, 1, how.eps))));
    return near === undefined ? linear : add(multiply(near.output, overValues(gate)), linear);
  }
  if (near === undefined) return divide(sum, overValues(total));
  const { windowFactor: w, linearFactor: l } = how;
  const powers = exp(subtract(near.lse, near.rowMax!));
  const nearTotal = w === undefined ? powers : multiply(powers, w);
  const farTotal = l === undefined ? total : multiply(total, l);
  const whole = add(nearTotal, farTotal);
  const ones = l ?? full(sum.device, [sum.shape[2]!], 1, { dtype: sum.dtype });
  const exact = multiply(near.output, overValues(divide(nearTotal, whole)));
  return add(exact, multiply(sum, overValues(divide(ones, whole))));
}

/** `v [B,T,HKV,V]` for every query head with a column of ones behind it: sums and totals in one product. */
export function withOnes(v: Tensor, queryHeads: number): Tensor {
  const ones = full(v.device, [...v.shape.slice(0, 3), 1], 1, { dtype: v.dtype });
  return repeatHeads(concat([v, ones], -1), queryHeads / v.shape[2]!);
}

/** Sums `[B,T,HQ,V+1]` as numerator and denominator. */
export function farOf(sums: Tensor): Far {
  const V = sums.shape[3]! - 1;
  const [sum, total] = split(sums, [V, 1], -1) as [Tensor, Tensor];
  return { sum, total: reshape(total, total.shape.slice(0, 3)) };
}

/** Tokens of one call and those of the window before them. */
export interface WindowedCall {
  /** `[B,T,HQ,K]` */
  readonly q: Tensor;
  /** `[B,n+T,HKV,·]`, n tokens of the window in front, as many in every row. */
  readonly keys: Tensor;
  readonly values: Tensor;
  /** Sums over all before these: `[B,HQ,F,V+1]`. */
  readonly state?: Tensor | undefined;
  readonly window: number;
  readonly scale?: number | undefined;
  readonly form: SequenceForm;
  readonly cuSeqlens?: Tensor | undefined;
  /** φ of queries `[B,T,HQ,K]` and of keys `[B,·,HKV,K]`, to `[B,·,HQ,F]`. */
  readonly mapQuery: (q: Tensor) => Tensor;
  readonly mapKey: (k: Tensor) => Tensor;
  /** F */
  readonly features: number;
}

/**
 * Output of a causal call `[B,T,HQ,V]`, and the sums `[B,HQ,F,V+1]` over all but the last `window` tokens.
 *
 * Query t sees the keys up to n + t: the last `window` of them exactly, those before by their sums. Costs
 * 2·window·(K + V) + 4·F·V flops per token and head, whatever T.
 */
export function attendWindowed(call: WindowedCall, how: Join): { output: Tensor; state: Tensor } {
  const { q, keys, values, state, window, scale, form, cuSeqlens } = call;
  const [B, T, HQ] = q.shape as [number, number, number];
  const before = keys.shape[1]! - T;
  const near =
    window === 0
      ? undefined
      : attention({ q, k: keys, v: values, cuSeqlens }, { window, scale, rowMax: how.kind === "joint" });
  const shift = window - before;
  if (shift >= T && state === undefined && near !== undefined) {
    const sequences = cuSeqlens === undefined ? B : cuSeqlens.size - 1;
    const nothing = full(q.device, [sequences, HQ, call.features, values.shape[3]! + 1], 0, {
      dtype: q.dtype,
    });
    const output = how.kind === "joint" ? near.output : multiply(near.output, overValues(how.gate!));
    return { output, state: nothing };
  }
  const bounds = cuSeqlens && [...cuSeqlens.dataSync()];
  const leaving = (x: Tensor): Tensor => slice(x, 1, 0, Math.max(0, T - shift));
  // A mapped key of zeros adds nothing, whatever stands beside it.
  const k = delayed(call.mapKey(leaving(keys)), T, shift, bounds);
  const v = withOnes(delayed(leaving(values), T, shift, bounds), HQ);
  const inputs = { q: call.mapQuery(q), k, v, initialState: state };
  const { output: sums, finalState } = runRule(sumsRule, form, inputs, { cuSeqlens });
  return { output: join(near, farOf(sums), how), state: finalState };
}
