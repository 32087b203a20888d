import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats, runElementwise } from "../elementwise.ts";
import { apply, type InputSpec, type Op, type OpEntry, type Tensor } from "../op.ts";
import { type ActivationName, type ActivationRow, activationRows } from "./rows.ts";

/** One function of the family, ready to call, and how suites see it. */
export interface Activation {
  readonly call: (x: Tensor) => Tensor;
  readonly entry: OpEntry<undefined>;
}

/** Multiply-adds that one exp, log or division is worth. */
const transcendentalCost = 12;

function forwardHost(row: ActivationRow): HostKernel {
  return (buffers, ints) => {
    const [x, y] = buffers as [TypedArray, TypedArray];
    for (let i = 0; i < ints[0]!; i++) y[i] = row.value(x[i]!);
  };
}

function backwardHost(row: ActivationRow): HostKernel {
  return (buffers, ints) => {
    const [kept, dy, dx] = buffers as [TypedArray, TypedArray, TypedArray];
    for (let i = 0; i < ints[0]!; i++) dx[i] = dy[i]! * row.slope(kept[i]!, kept[i]!);
  };
}

function makeOp(
  name: string,
  row: ActivationRow,
  forward: Kernel,
  backward: Kernel,
): Op<{ x: Tensor }, undefined, { y: Tensor }> {
  const forwardCost = 2 + transcendentalCost * row.transcendentals[0];
  const backwardCost = 3 + transcendentalCost * row.transcendentals[1];
  return {
    name,
    forward: ({ x }) => {
      checkFloats(name, "x", x);
      const y = empty(x.device, x.shape, { dtype: x.dtype });
      runElementwise(forward, [packed(x).layout, y.layout], x.size, forwardCost);
      return { outputs: { y }, saved: undefined };
    },
    backward: ({ inputs: { x }, outputs: { y }, grads }) => {
      if (grads.y === undefined) return {};
      const dx = empty(x.device, x.shape, { dtype: x.dtype });
      const kept = row.keeps === "x" ? packed(x) : y;
      runElementwise(backward, [kept.layout, packed(grads.y).layout, dx.layout], x.size, backwardCost);
      return { x: dx };
    },
  };
}

/** Arguments of every size class, and a few where functions go wrong: both infinities' neighbours, and zero. */
function inputs(name: ActivationName, shape: readonly number[]): Record<string, InputSpec> {
  if (name === "log" || name === "sqrt") return { x: { shape, sample: "uniform", low: 0.1, high: 20 } };
  return { x: { shape } };
}

/** Builds a function of the family from its row. */
export function activation(name: ActivationName): Activation {
  const row = activationRows[name];
  const forward: Kernel = { key: `activation.${name}.forward`, host: forwardHost(row) };
  const backward: Kernel = { key: `activation.${name}.backward`, host: backwardHost(row) };
  const op = makeOp(name, row, forward, backward);
  const call = (x: Tensor): Tensor => apply(op, { x }, undefined).y;
  const size = 2 ** 20;
  return {
    call,
    entry: {
      kind: "op",
      name,
      kernels: [forward, backward],
      run: ({ x }) => ({ y: call(x!) }),
      cases: [
        ...[1, 3, 17, 33, 65, 127].map((n) => ({
          name: `n=${n}`,
          inputs: inputs(name, [n]),
          options: undefined,
          terms: 1,
        })),
        { name: "n=5x833", inputs: inputs(name, [5, 833]), options: undefined, terms: 1 },
        { name: "n=0", inputs: inputs(name, [3, 0]), options: undefined, terms: 1 },
      ],
      bench: {
        inputs: inputs(name, [size]),
        options: undefined,
        bytes: { forward: 8 * size, backward: 12 * size },
        transcendentals: { forward: row.transcendentals[0] * size, backward: row.transcendentals[1] * size },
      },
    },
  };
}
