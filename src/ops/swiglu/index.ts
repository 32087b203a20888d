import { empty } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats, runElementwise } from "../elementwise.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";
import { backwardHost, forwardHost } from "./host.ts";

const forward: Kernel = { key: "swiglu.all.forward", host: forwardHost };
const backward: Kernel = { key: "swiglu.all.backward", host: backwardHost };

/** Multiply-adds that an element is worth, its exponential and its division included. */
const [forwardCost, backwardCost] = [15, 20];

const op: Op<{ gate: Tensor; up: Tensor }, undefined, { y: Tensor }> = {
  name: "swiglu",
  forward: ({ gate, up }) => {
    checkFloats("swiglu", "gate", gate);
    checkFloats("swiglu", "up", up);
    solveAxes("swiglu", { gate: { axes: "… D", shape: gate.shape }, up: { axes: "… D", shape: up.shape } });
    const y = empty(gate.device, gate.shape, { dtype: gate.dtype });
    runElementwise(forward, [packed(gate).layout, packed(up).layout, y.layout], y.size, forwardCost);
    return { outputs: { y }, saved: undefined };
  },
  backward: ({ inputs: { gate, up }, grads: { y: dy } }) => {
    if (dy === undefined) return {};
    const [dGate, dUp] = [gate, up].map((x) => empty(x.device, x.shape, { dtype: x.dtype })) as [
      Tensor,
      Tensor,
    ];
    const operands = [packed(gate), packed(up), packed(dy), dGate, dUp] as const;
    const [first, ...rest] = operands.map(({ layout }) => layout);
    runElementwise(backward, [first!, ...rest], gate.size, backwardCost);
    return { gate: dGate, up: dUp };
  },
};

/**
 * silu(gate)·up, the hidden values of a gated feed-forward (Shazeer, arXiv 2002.05202v1, eq. 6 with β = 1).
 *
 * `gate [..., D]`, `up [..., D]` floats of any layout → `[..., D]`. The bits of `multiply(silu(gate), up)` in one pass:
 * 3 instead of 5 reads and writes of an element, and 5 instead of 9 in the backward pass, which keeps the two inputs only.
 *
 * @throws ShapeError when the shapes differ, DtypeError when an operand holds whole numbers.
 * @example
 * const hidden = swiglu(gate, x);
 */
export function swiglu(gate: Tensor, up: Tensor): Tensor {
  return apply(op, { gate, up }, undefined).y;
}

const size = 2 ** 20;

/** How suites see `swiglu`. */
export const swigluEntry: OpEntry<undefined> = {
  kind: "op",
  name: "swiglu",
  kernels: [forward, backward],
  run: ({ gate, up }) => ({ y: swiglu(gate!, up!) }),
  cases: [[0, 3], [1], [3], [17], [33], [65], [127], [5, 833]].map((shape) => ({
    name: `n=${shape.join("x")}`,
    inputs: { gate: { shape }, up: { shape } },
    options: undefined,
    terms: 2,
  })),
  bench: {
    inputs: { gate: { shape: [size] }, up: { shape: [size] } },
    options: undefined,
    bytes: { forward: 12 * size, backward: 20 * size },
    transcendentals: { forward: size, backward: size },
  },
};
