import { rowsOf } from "../../autograd/rows.ts";
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, type Tensor } from "../../autograd/tensor.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { type AddForm, type AddOperands, type AddRule, addForward } from "./add.ts";
import { addBackward } from "./add-backward.ts";
import { addFullBackward, addFullForward, type FullPacked, type FullSizes } from "./add-full.ts";
import { gateAxes, packedOf } from "./gate.ts";
import { type Decay, type Packed, type Rows, type Sizes, sequenceCount } from "./problem.ts";

/** Inputs of an additive recurrence by symbol. */
export type AddInputs = {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  g?: Tensor | undefined;
  initialState?: Tensor | undefined;
  initialNormalizer?: Tensor | undefined;
  cuSeqlens?: Tensor | undefined;
};

/** Options of an additive recurrence. */
export interface AddOpOptions extends AddRule {
  readonly form: AddForm;
  readonly chunk?: number | undefined;
}

/** Output and carried state of an additive recurrence; the normaliser only where there is one. */
export type AddOutputs = { output: Tensor; finalState: Tensor; finalNormalizer?: Tensor | undefined };

/** What forward and backward of a causal job share. */
interface Job {
  readonly sizes: Sizes;
  readonly sequences: Packed | undefined;
  readonly count: number;
  readonly operands: AddOperands;
}

function jobOf(inputs: AddInputs, { form, decay }: AddOpOptions): Job {
  const { q, k, v, g, initialState, initialNormalizer } = inputs;
  const sequences = packedOf(inputs.cuSeqlens);
  const solved = solveAxes(`recurrence.add.${form}`, {
    q: { shape: q.shape, axes: "B T H K" },
    k: { shape: k.shape, axes: "B T H K" },
    v: { shape: v.shape, axes: "B T HV V" },
    g: g && { shape: g.shape, axes: gateAxes(decay) },
    initialState: initialState && { shape: initialState.shape, axes: sequences ? "N HV K V" : "B HV K V" },
    initialNormalizer: initialNormalizer && {
      shape: initialNormalizer.shape,
      axes: sequences ? "N HV K" : "B HV K",
    },
  });
  const sizes = {
    batch: solved.B,
    time: solved.T,
    heads: solved.H,
    valueHeads: solved.HV,
    keyWidth: solved.K,
    valueWidth: solved.V,
  };
  return {
    sizes,
    sequences,
    count: sequenceCount(sizes, sequences),
    operands: {
      q: rowsOf(q, 2),
      k: rowsOf(k, 2),
      v: rowsOf(v, 2),
      g: g && gateRows(g, decay),
      initialState: initialState && packed(initialState).layout,
      initialNormalizer: initialNormalizer && packed(initialNormalizer).layout,
    },
  };
}

function gateRows(g: Tensor, decay: Decay): Rows {
  return decay === "head" ? { slice: packed(g).layout, stride: 0 } : rowsOf(g, decay === "key" ? 2 : 1);
}

const like = (x: Tensor): Tensor => empty(x.device, x.shape, { dtype: x.dtype });
const zerosLike = (x: Tensor): Tensor => full(x.device, x.shape, 0, { dtype: x.dtype });

/** Outputs for a number of sequences, unwritten. */
function outputsFor(v: Tensor, sizes: Sizes, time: number, count: number, normalize: boolean): AddOutputs {
  const { batch, valueHeads, keyWidth, valueWidth } = sizes;
  const create = (shape: readonly number[]): Tensor => empty(v.device, shape, { dtype: v.dtype });
  return {
    output: create([batch, time, valueHeads, valueWidth]),
    finalState: create([count, valueHeads, keyWidth, valueWidth]),
    finalNormalizer: normalize ? create([count, valueHeads, keyWidth]) : undefined,
  };
}

const op: Op<AddInputs, AddOpOptions, AddOutputs> = {
  name: "recurrence.add",
  forward(inputs, options) {
    const { v } = inputs;
    const { sizes, sequences, count, operands } = jobOf(inputs, options);
    const outputs = outputsFor(v, sizes, sizes.time, count, options.normalize);
    const { output, finalState, finalNormalizer } = outputs;
    const results = {
      o: rowsOf(output, 2),
      finalState: finalState.layout,
      finalNormalizer: finalNormalizer?.layout,
    };
    const how = { packed: sequences, chunk: options.chunk };
    addForward(v.device, options.form, options, sizes, operands, results, how);
    return { outputs, saved: undefined };
  },
  backward({ inputs, options, outputs, grads, needs }) {
    const { q, k, v, g, initialState, initialNormalizer } = inputs;
    const { sizes, sequences, operands } = jobOf(inputs, options);
    const result = {
      q: like(q),
      k: like(k),
      v: like(v),
      g: g && needs.g ? like(g) : undefined,
      initialState: initialState && needs.initialState ? like(initialState) : undefined,
      initialNormalizer: initialNormalizer && needs.initialNormalizer ? like(initialNormalizer) : undefined,
    };
    addBackward(
      v.device,
      options,
      sizes,
      operands,
      {
        dOutput: rowsOf(grads.output ?? zerosLike(outputs.output), 2),
        dFinalState: grads.finalState && packed(grads.finalState).layout,
        dFinalNormalizer: grads.finalNormalizer && packed(grads.finalNormalizer).layout,
      },
      {
        dq: rowsOf(result.q, 2),
        dk: rowsOf(result.k, 2),
        dv: rowsOf(result.v, 2),
        dg: result.g && gateRows(result.g, options.decay),
        dInitialState: result.initialState?.layout,
        dInitialNormalizer: result.initialNormalizer?.layout,
      },
      { packed: sequences, chunk: options.chunk },
    );
    return result;
  },
};

/** The additive half of the engine as a differentiable op; every token sees itself and what came before. */
export function addRecurrence(inputs: AddInputs, options: AddOpOptions): AddOutputs {
  return apply(op, inputs, options);
}

/** Inputs of the form that is not causal; packed sequences of queries and keys may have lengths of their own. */
export type AddFullInputs = Omit<AddInputs, "g"> & { cuQueries?: Tensor | undefined };

/** Its rule. */
export type AddFullOptions = Omit<AddRule, "decay">;

interface FullJob {
  readonly sizes: FullSizes;
  readonly sequences: FullPacked | undefined;
  readonly count: number;
  readonly operands: Omit<AddOperands, "g">;
}

function fullJobOf(inputs: AddFullInputs): FullJob {
  const { q, k, v, initialState, initialNormalizer } = inputs;
  const keys = packedOf(inputs.cuSeqlens);
  const sequences = keys && { keys, queries: packedOf(inputs.cuQueries) ?? keys };
  const solved = solveAxes("recurrence.addFull", {
    q: { shape: q.shape, axes: "B Tq H K" },
    k: { shape: k.shape, axes: "B T H K" },
    v: { shape: v.shape, axes: "B T HV V" },
    initialState: initialState && { shape: initialState.shape, axes: keys ? "N HV K V" : "B HV K V" },
    initialNormalizer: initialNormalizer && {
      shape: initialNormalizer.shape,
      axes: keys ? "N HV K" : "B HV K",
    },
  });
  const sizes = {
    batch: solved.B,
    time: solved.T,
    queryTime: solved.Tq,
    heads: solved.H,
    valueHeads: solved.HV,
    keyWidth: solved.K,
    valueWidth: solved.V,
  };
  return {
    sizes,
    sequences,
    count: sequenceCount(sizes, keys),
    operands: {
      q: rowsOf(q, 2),
      k: rowsOf(k, 2),
      v: rowsOf(v, 2),
      initialState: initialState && packed(initialState).layout,
      initialNormalizer: initialNormalizer && packed(initialNormalizer).layout,
    },
  };
}

const fullOp: Op<AddFullInputs, AddFullOptions, AddOutputs> = {
  name: "recurrence.addFull",
  forward(inputs, rule) {
    const { v } = inputs;
    const { sizes, sequences, count, operands } = fullJobOf(inputs);
    const outputs = outputsFor(v, sizes, sizes.queryTime, count, rule.normalize);
    const { output, finalState, finalNormalizer } = outputs;
    const results = {
      o: rowsOf(output, 2),
      finalState: finalState.layout,
      finalNormalizer: finalNormalizer?.layout,
    };
    addFullForward(v.device, rule, sizes, operands, results, sequences);
    return { outputs, saved: undefined };
  },
  backward({ inputs, options: rule, outputs, grads, needs }) {
    const { q, k, v, initialState, initialNormalizer } = inputs;
    const { sizes, sequences, operands } = fullJobOf(inputs);
    const result = {
      q: like(q),
      k: like(k),
      v: like(v),
      initialState: initialState && needs.initialState ? like(initialState) : undefined,
      initialNormalizer: initialNormalizer && needs.initialNormalizer ? like(initialNormalizer) : undefined,
    };
    addFullBackward(
      v.device,
      rule,
      sizes,
      operands,
      {
        dOutput: rowsOf(grads.output ?? zerosLike(outputs.output), 2),
        dFinalState: grads.finalState && packed(grads.finalState).layout,
        dFinalNormalizer: grads.finalNormalizer && packed(grads.finalNormalizer).layout,
      },
      {
        dq: rowsOf(result.q, 2),
        dk: rowsOf(result.k, 2),
        dv: rowsOf(result.v, 2),
        dInitialState: result.initialState?.layout,
        dInitialNormalizer: result.initialNormalizer?.layout,
      },
      sequences,
    );
    return result;
  },
};

/** The additive half where every query reads what all keys wrote; queries may be of another length. */
export function addFullRecurrence(inputs: AddFullInputs, rule: AddFullOptions): AddOutputs {
  return apply(fullOp, inputs, rule);
}
