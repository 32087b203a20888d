import { rowsOf } from "../../autograd/rows.ts";
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, type Tensor } from "../../autograd/tensor.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { type DeltaForm, type DeltaJob, deltaBackward, deltaForward, deltaPlan } from "./delta.ts";
import { gateAxes, packedOf, sumGate } from "./gate.ts";
import { type Decay, type Rows, sequenceCount } from "./problem.ts";

/** Inputs of a delta recurrence by symbol. */
export type DeltaInputs = {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  beta: Tensor;
  g?: Tensor | undefined;
  initialState?: Tensor | undefined;
  cuSeqlens?: Tensor | undefined;
};

/** Options of a delta recurrence. */
export interface DeltaOptions {
  readonly form: DeltaForm;
  readonly decay: Decay;
  readonly scale: number;
  readonly chunk?: number | undefined;
}

function jobOf(inputs: DeltaInputs, options: DeltaOptions): DeltaJob {
  const { q, k, v, beta, g, initialState } = inputs;
  const sequences = packedOf(inputs.cuSeqlens);
  const sizes = solveAxes(`recurrence.delta.${options.form}`, {
    q: { shape: q.shape, axes: "B T H K" },
    k: { shape: k.shape, axes: "B T H K" },
    v: { shape: v.shape, axes: "B T HV V" },
    beta: { shape: beta.shape, axes: "B T HV" },
    g: g && { shape: g.shape, axes: gateAxes(options.decay) },
    initialState: initialState && { shape: initialState.shape, axes: sequences ? "N HV K V" : "B HV K V" },
  });
  return {
    sizes: {
      batch: sizes.B,
      time: sizes.T,
      heads: sizes.H,
      valueHeads: sizes.HV,
      keyWidth: sizes.K,
      valueWidth: sizes.V,
    },
    decay: options.decay,
    scale: options.scale,
    q: rowsOf(q, 2),
    eraseKey: rowsOf(k, 2),
    v: rowsOf(v, 2),
    beta: rowsOf(beta),
    g: g && gateRows(g, options.decay),
    initialState: initialState && packed(initialState).layout,
    packed: sequences,
    chunk: options.chunk,
  };
}

function gateRows(g: Tensor, decay: Decay): Rows {
  return decay === "head" ? { slice: packed(g).layout, stride: 0 } : rowsOf(g, decay === "key" ? 2 : 1);
}

const contiguousRows = (x: Tensor, innerAxes: number): Rows => rowsOf(x, innerAxes);

const op: Op<DeltaInputs, DeltaOptions, { output: Tensor; finalState: Tensor }, Tensor | undefined> = {
  name: "recurrence.delta",
  forward(inputs, options) {
    const job = jobOf(inputs, options);
    const { v } = inputs;
    const { batch, time, valueHeads, keyWidth, valueWidth } = job.sizes;
    const create = (shape: readonly number[]): Tensor => empty(v.device, shape, { dtype: v.dtype });
    const output = create([batch, time, valueHeads, valueWidth]);
    const finalState = create([sequenceCount(job.sizes, job.packed), valueHeads, keyWidth, valueWidth]);
    const isRecorded =
      options.form !== "parallel" && Object.values(inputs).some((input) => input?.requiresGrad);
    const kept = isRecorded ? create([deltaPlan(job).keptLength]) : undefined;
    const outputs = { o: contiguousRows(output, 2), finalState: finalState.layout, keptStates: kept?.layout };
    v.device.run(deltaForward(v.device, options.form, job, outputs));
    return { outputs: { output, finalState }, saved: kept };
  },
  backward({ inputs, options, outputs, saved, grads }) {
    const job = jobOf(inputs, options);
    const like = (x: Tensor): Tensor => empty(x.device, x.shape, { dtype: x.dtype });
    const { q, k, v, beta, g, initialState } = inputs;
    const kept = saved ?? keptAgain(v, job);
    const dOutput = grads.output ?? full(v.device, outputs.output.shape, 0, { dtype: v.dtype });
    const result = {
      q: like(q),
      k: like(k),
      v: like(v),
      beta: like(beta),
      initialState: initialState && like(initialState),
    };
    const perToken = options.decay === "head" ? like(beta) : g && like(g);
    v.device.run(
      deltaBackward(job, {
        keptStates: kept.layout,
        dO: rowsOf(dOutput, 2),
        dFinalState: grads.finalState && packed(grads.finalState).layout,
        dq: contiguousRows(result.q, 2),
        dEraseKey: contiguousRows(result.k, 2),
        dv: contiguousRows(result.v, 2),
        dBeta: contiguousRows(result.beta, 1),
        dg: g && perToken && contiguousRows(perToken, options.decay === "key" ? 2 : 1),
        dInitialState: result.initialState?.layout,
      }),
    );
    return { ...result, g: g && perToken && (options.decay === "head" ? sumGate(perToken) : perToken) };
  },
};

/** The states of segment borders, which the form that works all pairs at once never has. */
function keptAgain(v: Tensor, job: DeltaJob): Tensor {
  const kept = empty(v.device, [deltaPlan(job).keptLength], { dtype: v.dtype });
  const output = empty(v.device, v.shape, { dtype: v.dtype });
  v.device.run(
    deltaForward(v.device, "recurrent", job, { o: contiguousRows(output, 2), keptStates: kept.layout }),
  );
  return kept;
}

/** The delta half of the engine as a differentiable op; what its forms and mechanisms are made of. */
export function deltaRecurrence(
  inputs: DeltaInputs,
  options: DeltaOptions,
): { output: Tensor; finalState: Tensor } {
  return apply(op, inputs, options);
}
