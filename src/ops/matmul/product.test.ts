import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { gradients } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import { hostDevice, openWasm } from "../../device/index.ts";
import { sizeOf } from "../../tensor/shape.ts";
import { permute } from "../permute/index.ts";
import { matmul } from "./index.ts";

const host = hostDevice({ dtype: "float64" });
const wasm = await openWasm({ threads: 2, poison: true });
after(() => wasm.close());

/** Leading axes of both operands, each axis whole, 1 or missing, and the order in which their elements lie. */
const stacks = fc.array(
  fc.record({ length: fc.integer({ min: 0, max: 3 }), a: fc.boolean(), b: fc.boolean() }),
  { maxLength: 3 },
);
const jobs = fc.record({
  stacks,
  m: fc.integer({ min: 0, max: 9 }),
  n: fc.integer({ min: 0, max: 9 }),
  k: fc.integer({ min: 0, max: 9 }),
  transposeA: fc.boolean(),
  transposeB: fc.boolean(),
  bias: fc.boolean(),
  /** Whether the stack axes of an operand lie innermost in memory, and the matrices strided. */
  stridedA: fc.boolean(),
  stridedB: fc.boolean(),
});
type Job = typeof jobs extends fc.Arbitrary<infer Value> ? Value : never;

/** The gradient of a repeated row: a sum over stacks of which neither rows nor columns of B are contiguous. */
const scattered: Job = {
  ...{ m: 1, n: 1, k: 2, transposeA: false, transposeB: false, bias: false, stridedA: false, stridedB: true },
  stacks: [
    { length: 2, a: false, b: true },
    { length: 2, a: false, b: true },
  ],
};

function shapesOf(job: Job) {
  const { m, n, k } = job;
  return {
    a: [...job.stacks.map((axis) => (axis.a ? axis.length : 1)), ...(job.transposeA ? [k, m] : [m, k])],
    b: [...job.stacks.map((axis) => (axis.b ? axis.length : 1)), ...(job.transposeB ? [n, k] : [k, n])],
  };
}

const values = (size: number, seed: number): Float32Array =>
  Float32Array.from({ length: size }, (_, i) => Math.fround(Math.sin(seed + 1.7 * i)));

/** A leaf and the tensor of the wanted shape that is made of it: itself, or a view with its first axis moved last. */
function operand(device: Tensor["device"], shape: readonly number[], seed: number, strided: boolean) {
  const turn = strided ? [...shape.slice(1), shape[0]!] : shape;
  const leaf = tensor(device, values(sizeOf(turn), seed), turn, { requiresGrad: true });
  const back = [shape.length - 1, ...shape.slice(1).map((_, axis) => axis)];
  return { leaf, view: strided ? permute(leaf, back) : leaf };
}

/** The output and all gradients, one after the other. */
function outcome(device: Tensor["device"], job: Job): ArrayLike<number>[] {
  const shapes = shapesOf(job);
  const a = operand(device, shapes.a, 1, job.stridedA);
  const b = operand(device, shapes.b, 2, job.stridedB);
  const bias = job.bias ? tensor(device, values(job.n, 3), [job.n], { requiresGrad: true }) : undefined;
  const y = matmul(a.view, b.view, { transposeA: job.transposeA, transposeB: job.transposeB, bias });
  const leaves = [a.leaf, b.leaf, ...(bias === undefined ? [] : [bias])];
  const seed = tensor(device, values(y.size, 4), y.shape);
  return [y, ...gradients(y, leaves, [seed])].map((each) => each!.dataSync());
}

/** The output by the definition, element by element. */
function byDefinition(job: Job): Float64Array {
  const { m, n, k } = job;
  const shapes = shapesOf(job);
  const lengths = job.stacks.map((axis) => (axis.a || axis.b ? axis.length : 1));
  const a = logical(shapes.a, 1, job.stridedA);
  const b = logical(shapes.b, 2, job.stridedB);
  const bias = values(n, 3);
  const result = new Float64Array(sizeOf(lengths) * m * n);
  for (let entry = 0; entry < sizeOf(lengths); entry++) {
    const [aAt, bAt] = [indexIn(shapes.a, lengths, entry), indexIn(shapes.b, lengths, entry)];
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = job.bias ? bias[j]! : 0;
        for (let p = 0; p < k; p++) {
          const left = a[aAt * m * k + (job.transposeA ? p * m + i : i * k + p)]!;
          sum += left * b[bAt * k * n + (job.transposeB ? j * k + p : p * n + j)]!;
        }
        result[(entry * m + i) * n + j] = sum;
      }
    }
  }
  return result;
}

/** The values of an operand in row-major order of its shape, whatever its layout. */
function logical(shape: readonly number[], seed: number, strided: boolean): ArrayLike<number> {
  const flat = values(sizeOf(shape), seed);
  if (!strided) return flat;
  const rest = sizeOf(shape.slice(1));
  return flat.map((_, place) => flat[(place % rest) * shape[0]! + Math.floor(place / rest)]!);
}

/** Which matrix of an operand belongs to an entry of the stack. */
function indexIn(shape: readonly number[], lengths: readonly number[], entry: number): number {
  let index = 0;
  let rest = entry;
  let step = 1;
  for (let axis = lengths.length - 1; axis >= 0; axis--) {
    const at = rest % lengths[axis]!;
    rest = Math.floor(rest / lengths[axis]!);
    if (shape[axis] !== 1) index += at * step;
    step *= shape[axis]!;
  }
  return index;
}

function assertClose(got: ArrayLike<number>, want: ArrayLike<number>, eps: number, terms: number): void {
  assert.equal(got.length, want.length);
  let [difference, size] = [0, 0];
  for (let i = 0; i < want.length; i++) {
    difference += (got[i]! - want[i]!) ** 2;
    size += want[i]! ** 2;
  }
  // Every term is at most 1: rounding follows the terms, not what is left of them where a sum cancels.
  const error = Math.sqrt(difference) / Math.max(Math.sqrt(size), Math.sqrt(want.length), eps);
  assert.ok(error <= 8 * eps * Math.sqrt(terms), `relative error ${error}`);
}

test("stacks that broadcast, strided operands and empty axes follow the definition", () => {
  fc.assert(
    fc.property(jobs, (job) => {
      assertClose(outcome(host, job)[0]!, byDefinition(job), 2 ** -53, job.k + 1);
    }),
    { numRuns: 400 },
  );
});

test("stacks, strides and gradients are the same on wasm as on the host", () => {
  fc.assert(
    fc.property(jobs, (job) => {
      const want = outcome(host, job);
      const terms = 9 * 27 + 1;
      for (const [i, got] of outcome(wasm, job).entries()) assertClose(got, want[i]!, 2 ** -24, terms);
    }),
    { numRuns: 200, examples: [[scattered]] },
  );
});
