import { rowsOf } from "../../autograd/rows.ts";
import { empty } from "../../autograd/tensor.ts";
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { DtypeError, ShapeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";
import { backwardHost, leastLogScale, rowsHost } from "./host.ts";

const rowsKernel: Kernel = { key: "logisticMixture.rows.forward", host: rowsHost };
const backwardKernel: Kernel = { key: "logisticMixture.rows.backward", host: backwardHost };

type Inputs = { parameters: Tensor; values: Tensor };

/** One dispatch over the rows: parameters and values, then `others`. */
function rowsJob(kernel: Kernel, { parameters, values }: Inputs, others: readonly Slice[]): Dispatch {
  const [N, width] = parameters.shape as [number, number];
  const M = width / 3;
  const rows = rowsOf(parameters);
  return {
    kernel,
    buffers: [rows.slice, packed(values).layout, ...others],
    ints: [N, M, rows.stride],
    floats: [leastLogScale],
    units: Math.ceil(N / 8),
    work: N * M * 60,
    scratchBytes: 64 + 16 * 4 * Math.ceil(M / 4),
  };
}

const op: Op<Inputs, undefined, { nats: Tensor }> = {
  name: "logistic-mixture",
  forward(inputs) {
    const { parameters, values } = inputs;
    const { N, parameters: width } = solveAxes("logisticMixture", {
      parameters: { shape: parameters.shape, axes: "N parameters" },
      values: { shape: values.shape, axes: "N" },
    });
    if (width % 3 !== 0 || width === 0) {
      throw new ShapeError(
        `[logisticMixture] a logistic has a logit, a mean and a log scale: expected 3·M parameters, got ${width}`,
      );
    }
    checkValues(values);
    const nats = empty(parameters.device, [N], { dtype: parameters.dtype });
    parameters.device.run(rowsJob(rowsKernel, inputs, [nats.layout]));
    return { outputs: { nats }, saved: undefined };
  },
  backward({ inputs, grads: { nats } }) {
    if (nats === undefined) return {};
    const { device, shape, dtype } = inputs.parameters;
    const dParameters = empty(device, shape, { dtype });
    device.run(rowsJob(backwardKernel, inputs, [packed(nats).layout, dParameters.layout]));
    return { parameters: dParameters };
  },
};

function checkValues(values: Tensor): void {
  if (values.dtype !== "int32") {
    throw new DtypeError(`[logisticMixture] values are int32 from 0 to 255, got ${values.dtype}`);
  }
  const list = values.dataSync();
  for (let i = 0; i < list.length; i++) {
    if (list[i]! >= 0 && list[i]! <= 255) continue;
    throw new ShapeError(
      `[logisticMixture] values are levels of a pixel: expected 0 to 255, got ${list[i]} at position ${i}`,
    );
  }
}

/**
 * Negative log-likelihood of pixel values under mixtures of M discretised logistics, in nats, row by row.
 *
 * P(v) = Σ_i softmax(π)_i · (σ((x_v + 1/255 − μ_i)/s_i) − σ((x_v − 1/255 − μ_i)/s_i)) with x_v = v/127.5 − 1; the first
 * and the last bin reach to infinity, so that the 256 probabilities add up to 1 (PixelCNN++, arXiv 1701.05517v1,
 * section 2.1). `parameters [N, 3·M]` = [π | μ | log s], `values [N] int32` from 0 to 255 → `[N]`. Log scales are cut at
 * −7. Computed as log σ(a) + log σ(−b) + log(1 − e^(b−a)): no difference of nearly equal numbers, no threshold.
 * Cost: about 60·M multiply-adds a row.
 *
 * @throws ShapeError when axes disagree, the parameters are not 3·M or a value is outside 0 to 255; DtypeError for values
 * that are not int32.
 * @example
 * const parameters = tensor(device, [0, 0.2, -2], [1, 3]);
 * const nats = logisticMixture(parameters, tensor(device, [140], [1], { dtype: "int32" }));
 */
export function logisticMixture(parameters: Tensor, values: Tensor): Tensor {
  return apply(op, { parameters, values }, undefined).nats;
}

/** Eight roundings in the bin of each logistic, and a few in the two sums. */
const termsOf = (M: number): number => 8 * M + 24;

const levels = (n: number) => ({ shape: [n], sample: "integers" as const, low: 0, high: 256 });

/** How suites see `logisticMixture`. */
export const logisticMixtureEntry: OpEntry = {
  kind: "op",
  name: "logistic-mixture",
  kernels: [rowsKernel, backwardKernel],
  run: ({ parameters, values }) => ({ nats: logisticMixture(parameters!, values!) }),
  cases: [
    ...[1, 2, 4, 5, 10, 16].map((M) => ({
      name: `logistics=${M}`,
      inputs: { parameters: { shape: [19, 3 * M] }, values: levels(19) },
      options: undefined,
      terms: termsOf(M),
    })),
    {
      name: "edges",
      inputs: {
        parameters: { shape: [7, 30] },
        values: { shape: [7], sample: "values", values: [0, 255, 1, 254, 128, 0, 255] },
      },
      options: undefined,
      terms: termsOf(10),
    },
    {
      name: "no rows",
      inputs: { parameters: { shape: [0, 30] }, values: levels(0) },
      options: undefined,
      terms: 1,
    },
    {
      name: "value outside",
      inputs: { parameters: { shape: [1, 30] }, values: { shape: [1], sample: "values", values: [256] } },
      options: undefined,
      terms: 1,
      fails: "E_SHAPE",
    },
    {
      name: "no whole logistics",
      inputs: { parameters: { shape: [2, 10] }, values: levels(2) },
      options: undefined,
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
  bench: {
    inputs: { parameters: { shape: [16_384, 30] }, values: levels(16_384) },
    options: undefined,
    bytes: { forward: 4 * 32 * 16_384, backward: 4 * 62 * 16_384 },
    transcendentals: { forward: 16_384 * 70, backward: 16_384 * 120 },
  },
};
