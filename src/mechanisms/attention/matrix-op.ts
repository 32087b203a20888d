/** Attention with its T×Tk matrix as a differentiable op: what papers time as softmax, and what analysis looks at. */
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import { multiply, subtract } from "../../ops/arithmetic/index.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { permute } from "../../ops/permute/index.ts";
import { sum } from "../../ops/reduce/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { scale as times } from "../../ops/scale/index.ts";
import { attentionMatrix } from "./matrix.ts";
import { type AttentionInputs, type AttentionOptions, headRowsOf, problemOf } from "./operands.ts";

type Outputs = { output: Tensor; weights: Tensor };

const who = "attention.matrix";

/** `[B,T,H,W]` → `[B,HKV,G,T,W]`, a view. */
function grouped(x: Tensor, keyHeads: number): Tensor {
  const [B, T, H, W] = x.shape as [number, number, number, number];
  return permute(reshape(x, [B, T, keyHeads, H / keyHeads, W]), [0, 2, 3, 1, 4]);
}

/** `[B,HKV,G,T,W]` → `[B,T,HKV·G,W]`. */
function ungrouped(x: Tensor): Tensor {
  const [B, HKV, G, T, W] = x.shape as [number, number, number, number, number];
  return reshape(permute(x, [0, 3, 1, 2, 4]), [B, T, HKV * G, W]);
}

/** `[B,HKV,G,Tk,W]` summed over the queries that share a key head → `[B,Tk,HKV,W]`. */
function shared(x: Tensor): Tensor {
  return permute(sum(x, { axes: 2 }), [0, 2, 1, 3]);
}

const op: Op<AttentionInputs, AttentionOptions, Outputs> = {
  name: who,
  forward(inputs, options) {
    const { q, k, v } = inputs;
    const problem = problemOf(who, inputs, options);
    const { batch, time, keyTime, queryHeads, valueWidth } = problem.sizes;
    const output = empty(q.device, [batch, time, queryHeads, valueWidth], { dtype: q.dtype });
    const weights = empty(q.device, [batch, queryHeads, time, keyTime], { dtype: q.dtype });
    q.device.run(
      attentionMatrix(problem, {
        q: headRowsOf(q),
        k: headRowsOf(k),
        v: headRowsOf(v),
        output: headRowsOf(output),
        weights: weights.layout,
      }),
    );
    return { outputs: { output, weights }, saved: undefined };
  },
  backward({ inputs, options, outputs, grads, needs }) {
    const { q, k, v, bias } = inputs;
    const { scale } = problemOf(who, inputs, options);
    const [B, T, HQ] = q.shape as [number, number, number];
    const [Tk, HKV] = k.shape.slice(1) as [number, number];
    const pairs = [B, HKV, HQ / HKV, T, Tk];
    const weights = reshape(outputs.weights, pairs);
    const values = grouped(v, HKV);
    const dOutput = grads.output && grouped(grads.output, HKV);
    const parts = [
      dOutput && matmul(dOutput, values, { transposeB: true }),
      grads.weights && reshape(grads.weights, pairs),
    ];
    const dWeights = parts.reduce((a, b) => (a && b ? subtract(a, times(b, -1)) : (a ?? b)))!;
    const along = sum(multiply(weights, dWeights), { axes: -1, keepDims: true });
    const dScores = multiply(weights, subtract(dWeights, along));
    const dQ = times(matmul(dScores, grouped(k, HKV)), scale);
    const dK = times(matmul(dScores, grouped(q, HKV), { transposeA: true }), scale);
    const dV = dOutput && matmul(weights, dOutput, { transposeA: true });
    return {
      q: ungrouped(dQ),
      k: shared(dK),
      v: dV && shared(dV),
      bias: needs.bias ? summed(reshape(dScores, [B, HQ, T, Tk]), bias!) : undefined,
    };
  },
};

/** Summed over the axes along which the bias is shared. */
function summed(dScores: Tensor, bias: Tensor): Tensor {
  const axes = [0, 1].filter((axis) => bias.shape[axis] !== dScores.shape[axis]);
  return axes.length === 0 ? dScores : sum(dScores, { axes, keepDims: true });
}

/**
 * softmax(scale · q kᵀ + bias) v through the whole matrix of weights: `output [B,T,HQ,V]` and `weights [B,HQ,T,Tk]`,
 * whose rows sum to 1, or are zeros where a query sees no key. What hidden keys hold must be finite for gradients.
 *
 * Costs 2·B·HQ·T·Tk·(K + V) flops whatever the mask and 4·B·HQ·T·Tk bytes, three times that with gradients.
 *
 * @throws ShapeError, ConfigError as `attention`.
 */
export function attentionByMatrix(inputs: AttentionInputs, options: AttentionOptions = {}): Outputs {
  return apply(op, inputs, options);
}
