/** Parts of attention joined by their log-sum-exp, as a differentiable op. */
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, type Tensor } from "../../autograd/tensor.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { attentionMerge, attentionMergeBackward } from "./merge.ts";

type Inputs = { readonly outputs: Tensor; readonly lse: Tensor };
type Outputs = { output: Tensor; lse: Tensor };

const op: Op<Inputs, undefined, Outputs> = {
  name: "attention.merge",
  forward({ outputs, lse }) {
    const { parts, rows, V } = solveAxes("attention.merge", {
      outputs: { shape: outputs.shape, axes: "parts rows V" },
      lse: { shape: lse.shape, axes: "parts rows" },
    });
    const { device, dtype } = outputs;
    const merged = { output: empty(device, [rows, V], { dtype }), lse: empty(device, [rows], { dtype }) };
    device.run(
      attentionMerge(
        { rows, valueWidth: V, parts },
        { output: packed(outputs).layout, lse: packed(lse).layout },
        { output: merged.output.layout, lse: merged.lse.layout },
      ),
    );
    return { outputs: merged, saved: undefined };
  },
  backward({ inputs: { outputs, lse }, outputs: merged, grads }) {
    const { device, dtype } = outputs;
    const [parts, rows, valueWidth] = outputs.shape as [number, number, number];
    const dOutputs = empty(device, outputs.shape, { dtype });
    const dLse = empty(device, lse.shape, { dtype });
    const dOutput = grads.output ?? full(device, merged.output.shape, 0, { dtype });
    device.run(
      attentionMergeBackward(
        { rows, valueWidth, parts },
        { output: packed(outputs).layout, lse: packed(lse).layout },
        { output: merged.output.layout, lse: merged.lse.layout },
        { output: packed(dOutput).layout, lse: grads.lse && packed(grads.lse).layout },
        { output: dOutputs.layout, lse: dLse.layout },
      ),
    );
    return { outputs: dOutputs, lse: dLse };
  },
};

/**
 * Σ_n w_n O_n and log Σ_n exp(lse_n), w_n = exp(lse_n − lse): attention over the union of sets of keys from attention over
 * each. `outputs [P,rows,V]`, `lse [P,rows]` → `output [rows,V]`, `lse [rows]`.
 */
export function mergeParts(outputs: Tensor, lse: Tensor): Outputs {
  return apply(op, { outputs, lse }, undefined);
}
