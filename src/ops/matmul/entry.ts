import type { InputSpec, OpCase, OpEntry } from "../op.ts";
import { packedKernel, packKernel, stridedKernel } from "./kernels.ts";
import { matmul } from "./matmul.ts";

interface Transposed {
  readonly transposeA?: boolean;
  readonly transposeB?: boolean;
}

interface Sizes {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Leading axes of a and b. */
  readonly left?: readonly number[];
  readonly right?: readonly number[];
  readonly bias?: boolean;
}

function matmulCase(name: string, sizes: Sizes, options: Transposed = {}): OpCase<Transposed> {
  const { m, n, k, left = [], right = [], bias = false } = sizes;
  const inputs: Record<string, InputSpec> = {
    a: { shape: [...left, ...(options.transposeA ? [k, m] : [m, k])] },
    b: { shape: [...right, ...(options.transposeB ? [n, k] : [k, n])] },
    ...(bias ? { bias: { shape: [n] } } : {}),
  };
  const stack = Math.max(...[left, right].map((axes) => axes.reduce((x, y) => x * y, 1)));
  const gradientTerms = {
    a: Math.max(1, n * stack),
    b: Math.max(1, m * stack),
    bias: Math.max(1, m * stack),
  };
  return { name, inputs, options, terms: Math.max(1, k + 1), gradientTerms };
}

const odd = [1, 3, 17, 33, 65, 127];
const forms: readonly Transposed[] = [
  {},
  { transposeB: true },
  { transposeA: true },
  { transposeA: true, transposeB: true },
];
const formName = ({ transposeA, transposeB }: Transposed): string =>
  `${transposeA ? "t" : "n"}${transposeB ? "t" : "n"}`;

/** How suites and benchmarks see `matmul`. */
export const matmulEntry: OpEntry<Transposed> = {
  kind: "op",
  name: "matmul",
  kernels: [stridedKernel, packKernel, packedKernel],
  run: ({ a, b, bias }, options) => ({ y: matmul(a!, b!, { ...options, bias }) }),
  cases: [
    ...forms.flatMap((form) =>
      odd.map((n, i) => {
        const sizes = { m: n, n: odd[(i + 1) % odd.length]!, k: odd[(i + 2) % odd.length]! };
        return matmulCase(`${formName(form)} ${sizes.m}x${sizes.n}x${sizes.k}`, sizes, form);
      }),
    ),
    ...forms.map((form) =>
      matmulCase(
        `${formName(form)} stacked with bias`,
        { m: 5, n: 19, k: 7, left: [2, 3], right: [2, 3], bias: true },
        form,
      ),
    ),
    matmulCase("weights", { m: 33, n: 65, k: 17, left: [3], bias: true }, { transposeB: true }),
    matmulCase("left repeated", { m: 5, n: 9, k: 6, left: [], right: [2, 3] }),
    matmulCase("both repeated", { m: 5, n: 9, k: 6, left: [2, 1], right: [1, 3] }),
    matmulCase("single column", { m: 65, n: 1, k: 33, left: [2] }),
    matmulCase("several blocks", { m: 250, n: 150, k: 300, bias: true }),
    matmulCase("no steps", { m: 3, n: 5, k: 0, bias: true }),
    matmulCase("no rows", { m: 0, n: 5, k: 4, bias: true }),
    matmulCase("empty stack", { m: 2, n: 3, k: 4, left: [0] }),
    {
      ...matmulCase("inner sizes differ", { m: 2, n: 3, k: 4 }, {}),
      inputs: { a: { shape: [2, 4] }, b: { shape: [5, 3] } },
      fails: "E_SHAPE",
    },
    {
      ...matmulCase("stacks differ", { m: 2, n: 3, k: 4 }, {}),
      inputs: { a: { shape: [2, 2, 4] }, b: { shape: [3, 4, 3] } },
      fails: "E_SHAPE",
    },
    {
      ...matmulCase("no matrix", { m: 2, n: 3, k: 4 }, {}),
      inputs: { a: { shape: [4] }, b: { shape: [4, 3] } },
      fails: "E_SHAPE",
    },
    {
      ...matmulCase("integers", { m: 2, n: 3, k: 4 }, {}),
      inputs: { a: { shape: [2, 4], sample: "integers", low: 0, high: 3 }, b: { shape: [4, 3] } },
      fails: "E_DTYPE",
    },
  ],
  bench: {
    inputs: { a: { shape: [512, 512] }, b: { shape: [512, 512] } },
    options: { transposeB: true },
    bytes: { forward: 3 * 4 * 512 * 512, backward: 5 * 4 * 512 * 512 },
    flops: { forward: 2 * 512 ** 3, backward: 4 * 512 ** 3 },
  },
};
