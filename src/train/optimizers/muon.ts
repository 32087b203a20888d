import { empty, type Tensor } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel, Slice } from "../../device/device.ts";
import { type Matrices, matricesOf, product } from "../../ops/matmul/product.ts";
import { type AdamOptions, adamW } from "./adam.ts";
import type { MatrixRule, MatrixUpdate, UpdateRule } from "./optimizer.ts";

/** Constants of Muon; those of Adam are for what is no linear map. */
export interface MuonOptions extends AdamOptions {
  /** Share of the running sum that stays; 0.95 unless given. */
  readonly momentum?: number;
  /** Newton–Schulz iterations; 5 unless given. */
  readonly iterations?: number;
  /** Size of an update's entries beside Adam's: 0.2 unless given, so that both take one learning rate. */
  readonly scale?: number;
}

const unit = 4096;

/** Odd polynomials ax + bx³ + cx⁵ that bring singular values in (0, 1] near 1 in a few turns. */
const [a, b, c] = [3.4445, -4.775, 2.0315];

const momentHost: HostKernel = ([control, g, m, x, partials], [n], [momentum]) => {
  const scale = control![0]!;
  for (let u = 0; u * unit < n!; u++) {
    let sum = 0;
    for (let i = u * unit; i < Math.min((u + 1) * unit, n!); i++) {
      m![i] = momentum! * m![i]! + (1 - momentum!) * scale * g![i]!;
      x![i] = momentum! * m![i]! + (1 - momentum!) * scale * g![i]!;
      sum += x![i]! * x![i]!;
    }
    partials![u] = sum;
  }
};

const unitHost: HostKernel = ([partials, x], [n, count, stack]) => {
  for (let at = 0; at < stack!; at++) {
    let sum = 0;
    for (let i = 0; i < count!; i++) sum += partials![at * count! + i]!;
    const factor = 1 / (Math.sqrt(sum) + 1e-20);
    for (let i = at * n!; i < (at + 1) * n!; i++) x![i]! *= factor;
  }
};

const polynomialHost: HostKernel = ([gram, square, out], [n, stack], [first, second, third]) => {
  for (let i = 0; i < stack! * n! * n!; i++)
    out![i] = second! * gram![i]! + third! * square![i]! + ((i % (n! * n!)) % (n! + 1) === 0 ? first! : 0);
};

const applyHost: HostKernel = ([p, x], [n], [rate, decay]) => {
  for (let i = 0; i < n!; i++) p![i] = p![i]! * (1 - decay!) - rate! * x![i]!;
};

const kernels = {
  moment: { key: "optimizer.muonMoment.forward", host: momentHost },
  unit: { key: "optimizer.muonUnit.forward", host: unitHost },
  polynomial: { key: "optimizer.muonPolynomial.forward", host: polynomialHost },
  apply: { key: "optimizer.muonApply.forward", host: applyHost },
} satisfies Record<string, Kernel>;

/**
 * Muon: linear maps move along the orthogonal factor of their momentum, found by Newton–Schulz; all else moves as
 * Adam has it.
 *
 * m ← μm + (1 − μ)g, x = μm + (1 − μ)g, O = UVᵀ of x = UΣVᵀ, p ← p(1 − ηλ) − η·0.2·√max(out, in)·O (Liu et al.,
 * arXiv 2502.16982v1, eq. 1 and 4; Jordan 2024 for the polynomial). A step costs 15·in·out·min(in, out) multiply-adds
 * and more, as the training of some 2·min(in, out) tokens: it pays where a batch holds many times that.
 */
export function muon(options: MuonOptions = {}): UpdateRule {
  const { momentum = 0.95, iterations = 5, scale = 0.2, ...constants } = options;
  const matrices: MatrixRule = {
    slots: ["momentum"],
    update: (jobs, control) => {
      const directions = directionsOf(jobs, control, momentum, iterations);
      for (const [i, { value, learningRate, weightDecay }] of jobs.entries()) {
        const rate = learningRate * scale * Math.sqrt(Math.max(...value.shape));
        const buffers = [value.layout, nth(directions, i)];
        elementwise(kernels.apply, value, { buffers, floats: [rate, learningRate * weightDecay] });
      }
    },
  };
  return { ...adamW(constants), id: "muon", matrices };
}

/** The orthogonal factors of the momenta, about: singular values between 0.7 and 1.2. One stack `[maps, out, in]`. */
function directionsOf(
  jobs: readonly MatrixUpdate[],
  control: Tensor,
  momentum: number,
  turns: number,
): Tensor {
  const { value: first } = jobs[0]!;
  const { device, size } = first;
  const count = Math.ceil(size / unit);
  let x = empty(device, [jobs.length, ...first.shape]);
  const partials = empty(device, [jobs.length, count]);
  for (const [i, { value, grad, slots }] of jobs.entries()) {
    const buffers = [control.layout, grad.layout, slots["momentum"]!.layout, nth(x, i), nth(partials, i)];
    elementwise(kernels.moment, value, { buffers, floats: [momentum] });
  }
  device.run({
    ...{ kernel: kernels.unit, buffers: [partials.layout, x.layout], ints: [size, count, jobs.length] },
    ...{ floats: [], units: jobs.length * count, work: 2 * x.size, scratchBytes: 0 },
  });
  for (let i = 0; i < turns; i++) x = turn(x);
  return x;
}

/** Where one of a stack begins. */
function nth(stack: Tensor, i: number): Slice {
  const { storage, offset, strides } = stack.layout;
  return { storage, offset: offset + i * strides[0]! };
}

/** One Newton–Schulz turn of X [maps, rows, cols], worked on its shorter side: B = aI + bG + cG² with G = XXᵀ, then BX. */
function turn(x: Tensor): Tensor {
  const { device } = x;
  const [stack, rows, cols] = x.shape as [number, number, number];
  const n = Math.min(rows, cols);
  const isWide = rows <= cols;
  const [gram, square, mixed] = [0, 0, 0].map(() => empty(device, [stack, n, n])) as [Tensor, Tensor, Tensor];
  multiplyInto(gram, of(x, !isWide), of(x, isWide), Math.max(rows, cols));
  multiplyInto(square, of(gram), of(gram), n);
  device.run({
    ...{ kernel: kernels.polynomial, buffers: [gram.layout, square.layout, mixed.layout], ints: [n, stack] },
    ...{ floats: [a, b, c], units: stack * n, work: gram.size, scratchBytes: 0 },
  });
  const next = empty(device, x.shape);
  if (isWide) multiplyInto(next, of(mixed), of(x), n);
  else multiplyInto(next, of(x), of(mixed), n);
  return next;
}

function of(x: Tensor, transpose = false): Matrices {
  return matricesOf(x, [x.shape[0]!], transpose);
}

function multiplyInto(to: Tensor, left: Matrices, right: Matrices, k: number): void {
  const [stack, m, n] = to.shape as [number, number, number];
  product(to.device, { ...{ m, n, k, batch: [stack] }, a: left, b: right, c: of(to) });
}

interface Pieces {
  readonly buffers: readonly Slice[];
  readonly floats: readonly number[];
}

/** A kernel over the elements of a map. */
function elementwise(kernel: Kernel, { device, size }: Tensor, { buffers, floats }: Pieces): void {
  device.run({
    ...{ kernel, buffers, ints: [size], floats },
    ...{ units: Math.ceil(size / unit), work: size * 2, scratchBytes: 0 },
  });
}
