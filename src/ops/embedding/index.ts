import { rowsOf } from "../../autograd/rows.ts";
import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { checkTensor, DtypeError, ShapeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";

const forwardHost: HostKernel = (buffers, ints) => {
  const [ids, weight, y] = buffers as [TypedArray, TypedArray, TypedArray];
  const [n, width, stride] = ints as [number, number, number];
  for (let row = 0; row < n; row++) {
    for (let i = 0; i < width; i++) y[row * width + i] = weight[ids[row]! * stride + i]!;
  }
};

const backwardHost: HostKernel = (buffers, ints) => {
  const [ids, dy, dWeight] = buffers as [TypedArray, TypedArray, TypedArray];
  const [n, width, stride, vocabulary] = ints as [number, number, number, number];
  dWeight.fill(0, 0, vocabulary * width);
  for (let row = 0; row < n; row++) {
    for (let i = 0; i < width; i++) dWeight[ids[row]! * width + i]! += dy[row * stride + i]!;
  }
};

const forwardKernel: Kernel = { key: "embedding.rows.forward", host: forwardHost };
const backwardKernel: Kernel = { key: "embedding.rows.backward", host: backwardHost };

/** Rows of a table by their numbers, unchecked. No gradient of its own. */
export function gatherRows(ids: Tensor, weight: Tensor): Tensor {
  const width = weight.shape[1]!;
  const y = empty(weight.device, [...ids.shape, width], { dtype: weight.dtype });
  const table = rowsOf(weight);
  weight.device.run({
    kernel: forwardKernel,
    buffers: [packed(ids).layout, table.slice, y.layout],
    ints: [ids.size, width, table.stride],
    floats: [],
    units: Math.ceil(ids.size / 16),
    work: y.size,
    scratchBytes: 0,
  });
  return y;
}

/** A table `[count, D]` whose row r is the sum of the rows with number r, in their order. No gradient of its own. */
export function sumRows(ids: Tensor, rows: Tensor, count: number): Tensor {
  const width = rows.shape.at(-1)!;
  const table = empty(rows.device, [count, width], { dtype: rows.dtype });
  const source = rowsOf(rows);
  rows.device.run({
    kernel: backwardKernel,
    buffers: [packed(ids).layout, source.slice, table.layout],
    ints: [ids.size, width, source.stride, count],
    floats: [],
    units: 16,
    work: rows.size + table.size,
    scratchBytes: 0,
  });
  return table;
}

const op: Op<{ ids: Tensor; weight: Tensor }, undefined, { y: Tensor }> = {
  name: "embedding",
  forward({ ids, weight }) {
    checkTensor("embedding", "weight", weight);
    const { vocabulary } = solveAxes("embedding", { weight: { shape: weight.shape, axes: "vocabulary D" } });
    checkIds("embedding", ids, vocabulary);
    return { outputs: { y: gatherRows(ids, weight) }, saved: undefined };
  },
  backward: ({ inputs: { ids, weight }, grads: { y } }) => ({
    weight: y && sumRows(ids, y, weight.shape[0]!),
  }),
};

/** Throws unless ids are int32 numbers of rows; reads them synchronously. */
export function checkIds(who: string, ids: Tensor, vocabulary: number): void {
  if (ids.dtype !== "int32") throw new DtypeError(`[${who}] ids are int32, got ${ids.dtype}`);
  const values = ids.dataSync();
  for (let i = 0; i < values.length; i++) {
    if (values[i]! < 0 || values[i]! >= vocabulary) {
      throw new ShapeError(
        `[${who}] ids name rows of the table: expected 0 to ${vocabulary - 1}, got ${values[i]} at position ${i}`,
      );
    }
  }
}

/**
 * Rows of a table by their numbers.
 *
 * `ids [...] int32`, `weight [vocabulary, D]` → `[..., D]`. The gradient of the table adds up the rows of the incoming
 * one in the order of the ids. The ids are checked by a synchronous read, which waits for the job that wrote them: free
 * on the host and wasm devices, whose memory is here. Cost: the bytes of the result; backward also writes the whole table.
 *
 * @throws ShapeError for an id outside the table, DtypeError for ids that are not int32.
 * @example
 * const x = embedding(tokens, table); // [B, T] → [B, T, D]
 */
export function embedding(ids: Tensor, weight: Tensor): Tensor {
  return apply(op, { ids, weight }, undefined).y;
}

const table = (vocabulary: number, width: number) => ({ shape: [vocabulary, width] });

/** How suites see `embedding`. */
export const embeddingEntry: OpEntry<undefined> = {
  kind: "op",
  name: "embedding",
  kernels: [forwardKernel, backwardKernel],
  run: ({ ids, weight }) => ({ y: embedding(ids!, weight!) }),
  cases: [
    ...[1, 3, 17, 33, 65].map((width) => ({
      name: `D=${width}`,
      inputs: {
        ids: { shape: [3, 17], sample: "integers" as const, low: 0, high: 9 },
        weight: table(9, width),
      },
      options: undefined,
      terms: 1,
      gradientTerms: { weight: 51 },
    })),
    {
      name: "no tokens",
      inputs: { ids: { shape: [0], sample: "values", values: [] }, weight: table(4, 5) },
      options: undefined,
      terms: 1,
    },
    {
      name: "id outside",
      inputs: { ids: { shape: [2], sample: "values", values: [0, 4] }, weight: table(4, 5) },
      options: undefined,
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
  bench: {
    inputs: { ids: { shape: [8, 512], sample: "integers", low: 0, high: 4096 }, weight: table(4096, 256) },
    options: undefined,
    bytes: { forward: 8 * 4096 * 256, backward: 16 * 4096 * 256 },
  },
};
