import { rowsOf } from "../../autograd/rows.ts";
import { empty } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { ConfigError, checkTensor, checkWord, DtypeError, ShapeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, Tensor } from "../op.ts";
import { backwardHost, rowsHost, sumHost } from "./host.ts";

const rowsKernel: Kernel = { key: "crossEntropy.rows.forward", host: rowsHost };
const sumKernel: Kernel = { key: "crossEntropy.sum.forward", host: sumHost };
const backwardKernel: Kernel = { key: "crossEntropy.rows.backward", host: backwardHost };

/** Options of `crossEntropy`. */
export interface CrossEntropyOptions {
  /** Rows with this target count for nothing; −100 unless given. */
  readonly ignoreIndex?: number;
  /** Share of the target spread evenly over the vocabulary; 0 unless given. */
  readonly smoothing?: number;
  /** `mean` over the weights of the rows that count, unless given. */
  readonly reduction?: "mean" | "sum";
}

type Inputs = { logits: Tensor; targets: Tensor; labelWeights?: Tensor | undefined };
type Saved = { readonly logSums: Tensor; readonly weights: Tensor; readonly result: Tensor };

const op: Op<Inputs, Required<CrossEntropyOptions>, { loss: Tensor }, Saved> = {
  name: "cross-entropy",
  forward({ logits, targets, labelWeights }, options) {
    const { N, vocabulary } = solveAxes("crossEntropy", {
      logits: { shape: logits.shape, axes: "N vocabulary" },
      targets: { shape: targets.shape, axes: "N" },
      labelWeights: labelWeights && { shape: labelWeights.shape, axes: "vocabulary" },
    });
    checkTargets(targets, vocabulary, options.ignoreIndex);
    const { device, dtype } = logits;
    const make = (size: number): Tensor => empty(device, [size], { dtype });
    const saved = { logSums: make(N), weights: make(N), result: make(2) };
    const losses = make(N);
    const rows = rowsOf(logits);
    const none = losses.layout;
    device.run({
      kernel: rowsKernel,
      buffers: [
        rows.slice,
        packed(targets).layout,
        labelWeights ? packed(labelWeights).layout : none,
        losses.layout,
        saved.logSums.layout,
        saved.weights.layout,
      ],
      ints: [N, vocabulary, rows.stride, options.ignoreIndex, labelWeights ? 1 : 0],
      floats: [options.smoothing],
      units: Math.ceil(N / 8),
      work: N * vocabulary * 10,
      scratchBytes: 0,
    });
    device.run({
      kernel: sumKernel,
      buffers: [losses.layout, saved.weights.layout, saved.result.layout],
      ints: [N, options.reduction === "mean" ? 1 : 0],
      floats: [],
      units: 1,
      work: N,
      scratchBytes: 0,
    });
    const { storage, offset } = saved.result.layout;
    return { outputs: { loss: new Tensor({ storage, offset, strides: [] }, []) }, saved };
  },
  backward({ inputs: { logits, targets }, options, saved, grads: { loss } }) {
    if (loss === undefined) return {};
    const [N, vocabulary] = logits.shape as [number, number];
    const dLogits = empty(logits.device, logits.shape, { dtype: logits.dtype });
    const rows = rowsOf(logits);
    logits.device.run({
      kernel: backwardKernel,
      buffers: [
        ...[rows.slice, packed(targets).layout, saved.logSums.layout, saved.weights.layout],
        ...[saved.result.layout, loss.layout, dLogits.layout],
      ],
      ints: [N, vocabulary, rows.stride],
      floats: [options.smoothing],
      units: Math.ceil(N / 8),
      work: N * vocabulary * 10,
      scratchBytes: 0,
    });
    return { logits: dLogits };
  },
};

function checkTargets(targets: Tensor, vocabulary: number, ignored: number): void {
  if (targets.dtype !== "int32")
    throw new DtypeError(`[crossEntropy] targets are int32, got ${targets.dtype}`);
  const values = targets.dataSync();
  for (let i = 0; i < values.length; i++) {
    const target = values[i]!;
    if (target === ignored || (target >= 0 && target < vocabulary)) continue;
    throw new ShapeError(
      `[crossEntropy] targets name entries of the vocabulary: expected 0 to ${vocabulary - 1} or ${ignored}, got ${target} at position ${i}`,
    );
  }
}

/**
 * Cross-entropy of a softmax over the last axis, in nats, as one number.
 *
 * ℓ_n = w_{y_n} ((1 − ε)(lse x_n − x_{n,y_n}) + ε (lse x_n − mean x_n)); the mean divides by Σ w of the rows that count.
 * `logits [N, vocabulary]`, `targets [N] int32`, `labelWeights [vocabulary]` without gradient → `[]`. Where no row
 * counts the loss is 0. Probabilities are never stored; the sum over the vocabulary runs in float64. Targets are checked
 * by a synchronous read, which waits for the job that wrote them: free on the host and wasm devices, whose memory is here.
 *
 * @throws ShapeError when axes disagree or a target is outside the vocabulary; DtypeError for other targets.
 * @example
 * const loss = crossEntropy(logits, targets, { ignoreIndex: -100 });
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  options: CrossEntropyOptions = {},
  labelWeights?: Tensor,
): Tensor {
  const { ignoreIndex = -100, smoothing = 0, reduction = "mean" } = options;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw new ConfigError(`[crossEntropy] smoothing is a share: expected 0 to 1, got ${smoothing}`);
  }
  checkTensor("crossEntropy", "targets", targets);
  checkWord("crossEntropy", "reduction", reduction, ["mean", "sum"]);
  return apply(op, { logits, targets, labelWeights }, { ignoreIndex, smoothing, reduction }).loss;
}

const targets = (n: number, high: number) => ({ shape: [n], sample: "integers" as const, low: 0, high });

/** How suites see `crossEntropy`. */
export const crossEntropyEntry: OpEntry<CrossEntropyOptions> = {
  kind: "op",
  name: "cross-entropy",
  kernels: [rowsKernel, sumKernel, backwardKernel],
  run: ({ logits, targets, labelWeights }, options) => ({
    loss: crossEntropy(logits!, targets!, options, labelWeights),
  }),
  cases: [
    ...[1, 3, 17, 33, 257].map((vocabulary) => ({
      name: `vocabulary=${vocabulary}`,
      inputs: { logits: { shape: [19, vocabulary] }, targets: targets(19, vocabulary) },
      options: {},
      terms: vocabulary + 19,
    })),
    {
      name: "weights and smoothing",
      inputs: {
        logits: { shape: [9, 7] },
        targets: { shape: [9], sample: "values", values: [0, 1, -100, 6, 2, 2, -100, 5, 3] },
        labelWeights: { shape: [7], sample: "uniform", low: 0.5, high: 2, differentiable: false },
      },
      options: { smoothing: 0.1 },
      terms: 16,
    },
    {
      name: "sum",
      inputs: { logits: { shape: [5, 12] }, targets: targets(5, 12) },
      options: { reduction: "sum" },
      terms: 17,
    },
    {
      name: "no rows",
      inputs: { logits: { shape: [0, 12] }, targets: targets(0, 12) },
      options: {},
      terms: 1,
    },
    {
      name: "target outside",
      inputs: { logits: { shape: [1, 4] }, targets: { shape: [1], sample: "values", values: [4] } },
      options: {},
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
  bench: {
    inputs: { logits: { shape: [2048, 1024] }, targets: targets(2048, 1024) },
    options: {},
    bytes: { forward: 4 * 2048 * 1024, backward: 8 * 2048 * 1024 },
    transcendentals: { forward: 2048 * 1024, backward: 2048 * 1024 },
  },
};
