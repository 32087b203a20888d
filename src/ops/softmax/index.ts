import { rowsOf } from "../../autograd/rows.ts";
import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats } from "../elementwise.ts";
import { apply, type Op, type OpCase, type OpEntry, type Tensor } from "../op.ts";
import { logSoftmaxHost, softmaxHost } from "./host.ts";

/** Multiply-adds that an element is worth. */
const cost = 16;

interface Rows {
  readonly kernels: readonly [forward: Kernel, backward: Kernel];
  readonly op: Op<{ x: Tensor }, undefined, { y: Tensor }>;
}

function rowsOp(name: string, host: { readonly forward: HostKernel; readonly backward: HostKernel }): Rows {
  const forward: Kernel = { key: `${name}.rows.forward`, host: host.forward };
  const backward: Kernel = { key: `${name}.rows.backward`, host: host.backward };
  const op: Op<{ x: Tensor }, undefined, { y: Tensor }> = {
    name,
    forward: ({ x }) => {
      checkFloats(name, "x", x);
      const { D } = solveAxes(name, { x: { shape: x.shape, axes: "… D" } });
      const y = empty(x.device, x.shape, { dtype: x.dtype });
      if (y.size > 0) {
        const { slice, stride } = rowsOf(x);
        x.device.run({
          kernel: forward,
          buffers: [slice, y.layout],
          ints: [D, stride, y.size / D],
          floats: [],
          units: y.size / D,
          work: y.size * cost,
          scratchBytes: 0,
        });
      }
      return { outputs: { y }, saved: undefined };
    },
    backward: ({ outputs: { y }, grads }) => {
      if (grads.y === undefined) return {};
      const dx = empty(y.device, y.shape, { dtype: y.dtype });
      const width = y.shape[y.rank - 1]!;
      if (y.size > 0) {
        y.device.run({
          kernel: backward,
          buffers: [y.layout, packed(grads.y).layout, dx.layout],
          ints: [width, y.size / width],
          floats: [],
          units: y.size / width,
          work: y.size * cost,
          scratchBytes: 0,
        });
      }
      return { x: dx };
    },
  };
  return { kernels: [forward, backward], op };
}

const plain = /* @__PURE__ */ rowsOp("softmax", softmaxHost);
const logarithm = /* @__PURE__ */ rowsOp("logSoftmax", logSoftmaxHost);

/**
 * exp(x_i) / Σ_j exp(x_j) over the last axis, computed after subtracting the row's largest element.
 *
 * `x [..., D]` floats → the same shape; every row sums to 1. −Infinity gives exactly 0; a row of nothing else is NaN.
 * Cost: two passes over a row that stays in the cache, one exp an element. Error within 8·eps·sqrt(D) of the row.
 *
 * @throws ShapeError when x is a scalar, DtypeError when it holds whole numbers.
 * @example
 * const probabilities = softmax(logits);
 */
export function softmax(x: Tensor): Tensor {
  return apply(plain.op, { x }, undefined).y;
}

/**
 * The logarithm of `softmax`: x_i − max − log Σ_j exp(x_j − max), over the last axis; finite where softmax underflows.
 *
 * `x [..., D]` floats → the same shape.
 *
 * @throws ShapeError when x is a scalar, DtypeError when it holds whole numbers.
 * @example
 * const logProbabilities = logSoftmax(logits);
 */
export function logSoftmax(x: Tensor): Tensor {
  return apply(logarithm.op, { x }, undefined).y;
}

const cases: readonly OpCase<undefined>[] = [
  ...[1, 3, 17, 33, 65, 127].map((n) => ({
    name: `n=${n}`,
    inputs: { x: { shape: [5, n] } },
    options: undefined,
    terms: n,
  })),
  {
    name: "far apart",
    inputs: { x: { shape: [3, 2, 37], sample: "uniform", low: -120, high: 120 } },
    options: undefined,
    terms: 37,
  },
  { name: "one row", inputs: { x: { shape: [1030] } }, options: undefined, terms: 1030 },
  { name: "no rows", inputs: { x: { shape: [0, 5] } }, options: undefined, terms: 1 },
  { name: "no columns", inputs: { x: { shape: [5, 0] } }, options: undefined, terms: 1 },
  { name: "a scalar", inputs: { x: { shape: [] } }, options: undefined, terms: 1, fails: "E_SHAPE" },
];

const size = 2 ** 20;

function entry(name: string, rows: Rows, transcendentals: number): OpEntry<undefined> {
  return {
    kind: "op",
    name,
    kernels: rows.kernels,
    run: ({ x }) => ({ y: apply(rows.op, { x: x! }, undefined).y }),
    cases,
    bench: {
      inputs: { x: { shape: [size / 1024, 1024] } },
      options: undefined,
      bytes: { forward: 8 * size, backward: 12 * size },
      transcendentals: { forward: size, backward: transcendentals * size },
    },
  };
}

/** How suites see `softmax`. */
export const softmaxEntry = /* @__PURE__ */ entry("softmax", plain, 0);
/** How suites see `logSoftmax`. */
export const logSoftmaxEntry = /* @__PURE__ */ entry("logSoftmax", logarithm, 1);
