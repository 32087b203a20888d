/** Exact attention in tiles as a differentiable op: what mechanisms and layers call. */
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, type Tensor } from "../../autograd/tensor.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { type AttentionInputs, type AttentionOptions, headRowsOf, problemOf } from "./operands.ts";
import { attentionBackward, attentionBiasBackward, attentionForward } from "./tiled.ts";

/** Options of the op, and whether the largest score of every query is wanted beside its log-sum-exp. */
export interface AttentionOpOptions extends AttentionOptions {
  readonly rowMax?: boolean | undefined;
}

/** `output [B,T,HQ,V]`, `lse [B,T,HQ]` and, where asked for, `rowMax [B,T,HQ]`. */
export type AttentionOutputs = {
  output: Tensor;
  /** log Σ exp(score); −Infinity where a query sees no key. */
  lse: Tensor;
  rowMax?: Tensor | undefined;
};

const who = "attention";

const op: Op<AttentionInputs, AttentionOpOptions, AttentionOutputs> = {
  name: who,
  forward(inputs, options) {
    const { q, k, v } = inputs;
    const problem = problemOf(who, inputs, options);
    const { batch, time, queryHeads, valueWidth } = problem.sizes;
    const create = (...shape: number[]): Tensor => empty(q.device, shape, { dtype: q.dtype });
    const output = create(batch, time, queryHeads, valueWidth);
    const lse = create(batch, time, queryHeads);
    const rowMax = options.rowMax ? create(batch, time, queryHeads) : undefined;
    q.device.run(
      attentionForward(problem, {
        q: headRowsOf(q),
        k: headRowsOf(k),
        v: headRowsOf(v),
        output: headRowsOf(output),
        lse: lse.layout,
        rowMax: rowMax?.layout,
      }),
    );
    return { outputs: { output, lse, rowMax }, saved: undefined };
  },
  backward({ inputs, options, outputs, grads, needs }) {
    const { q, k, v, bias } = inputs;
    const { device } = q;
    const like = (x: Tensor): Tensor => empty(device, x.shape, { dtype: x.dtype });
    const problem = problemOf(who, inputs, options);
    const dOutput = grads.output ?? full(device, outputs.output.shape, 0, { dtype: q.dtype });
    const result = { q: like(q), k: like(k), v: like(v), bias: needs.bias ? like(bias!) : undefined };
    const operands = {
      q: headRowsOf(q),
      k: headRowsOf(k),
      v: headRowsOf(v),
      output: headRowsOf(outputs.output),
      lse: outputs.lse.layout,
      rowMax: outputs.rowMax?.layout,
      dOutput: headRowsOf(dOutput),
      dLse: grads.lse && packed(grads.lse).layout,
      dRowMax: grads.rowMax && packed(grads.rowMax).layout,
      delta: like(outputs.lse).layout,
      dQ: headRowsOf(result.q),
      dK: headRowsOf(result.k),
      dV: headRowsOf(result.v),
    };
    for (const dispatch of attentionBackward(problem, operands, device.info().threads)) device.run(dispatch);
    if (result.bias !== undefined)
      device.run(attentionBiasBackward(problem, { ...operands, dBias: result.bias.layout }));
    return result;
  },
};

/**
 * softmax(scale · q kᵀ + bias) v over the keys that each query sees, with its log-sum-exp, gradients through both.
 *
 * `q [B,T,HQ,K]`, `k [B,Tk,HKV,K]`, `v [B,Tk,HKV,V]` of any layout; query head j reads key head floor(j / (HQ/HKV)). No
 * T×Tk matrix exists forward or backward: 2·(K + V) flops and one exp per query and key seen, memory O(T). A query that
 * sees no key gets zeros, lse −Infinity and zero gradients; what hidden keys hold, NaN included, does not matter.
 *
 * @throws ShapeError where axes disagree, ConfigError for a window that is no whole number >= 1 or not causal.
 * @example
 * const { output } = attention({ q, k, v: k }, { causal: true });
 */
export function attention(inputs: AttentionInputs, options: AttentionOpOptions = {}): AttentionOutputs {
  return apply(op, inputs, options);
}
