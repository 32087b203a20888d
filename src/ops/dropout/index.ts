import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";

/** Numbers of elements are spread by the golden ratio's bits before they are mixed. */
const spread = 0x9e3779b9;

/** The finaliser of MurmurHash3 up to its last step, which would change the low half alone. */
function mixHigh(x: number): number {
  let h = x ^ (x >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  return Math.imul(h, 0xc2b2ae35);
}

/** The whole finaliser: every input bit changes every output bit with odds near one half. */
function mix(x: number): number {
  const h = mixHigh(x);
  return h ^ (h >>> 16);
}

const host: HostKernel = (buffers, [n, key, threshold], [factor]) => {
  const [x, y] = buffers as [TypedArray, TypedArray];
  for (let i = 0; i < n!; i++) {
    y[i] = mixHigh(Math.imul(i, spread) ^ key!) < threshold! ? 0 : x[i]! * factor!;
  }
};

const kernel: Kernel = { key: "dropout.all.forward", host };

/** Options of `dropout`. */
export interface DropoutOptions {
  /** Share of elements set to zero, 0 <= p < 1. */
  readonly p: number;
  /** The same seed drops the same elements on every device and with any number of threads. */
  readonly seed: number;
}

function drop(x: Tensor, { p, seed }: DropoutOptions): Tensor {
  const y = empty(x.device, x.shape, { dtype: x.dtype });
  x.device.run({
    kernel,
    buffers: [packed(x).layout, y.layout],
    ints: [x.size, mix(seed | 0) ^ mix(Math.floor(seed / 2 ** 32)), Math.floor(p * 2 ** 32) - 2 ** 31],
    floats: [1 / (1 - p)],
    units: Math.ceil(x.size / 4096),
    work: x.size * 2,
    scratchBytes: 0,
  });
  return y;
}

const op: Op<{ x: Tensor }, DropoutOptions, { y: Tensor }> = {
  name: "dropout",
  forward: ({ x }, options) => ({ outputs: { y: drop(x, options) }, saved: undefined }),
  backward: ({ options, grads: { y } }) => ({ x: y && drop(y, options) }),
};

/**
 * x with a random share p of its elements set to zero and the others multiplied by 1/(1−p) (arXiv 1207.0580v1).
 *
 * Which elements fall depends on the seed and their row-major position alone. The gradient passes where x passed.
 * Cost: the bytes of x once read and once written.
 *
 * @throws ConfigError when p is outside [0, 1) or the seed is not a whole number >= 0.
 * @example
 * const y = dropout(x, { p: 0.1, seed: 7 });
 */
export function dropout(x: Tensor, options: DropoutOptions): Tensor {
  const { p, seed } = options;
  if (!(p >= 0 && p < 1)) throw new ConfigError(`[dropout] p is a share: expected 0 <= p < 1, got ${p}`);
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new ConfigError(`[dropout] the seed is a whole number >= 0, got ${seed}`);
  return p === 0 ? x : apply(op, { x }, options).y;
}

/** How suites see `dropout`. */
export const dropoutEntry: OpEntry<DropoutOptions> = {
  kind: "op",
  name: "dropout",
  kernels: [kernel],
  run: ({ x }, options) => ({ y: dropout(x!, options) }),
  cases: [
    ...[0, 1, 3, 17, 127].map((n) => ({
      name: `n=${n}`,
      inputs: { x: { shape: [3, n] } },
      options: { p: 0.4, seed: n },
      terms: 1,
    })),
    { name: "none", inputs: { x: { shape: [5] } }, options: { p: 0, seed: 1 }, terms: 1 },
    { name: "all", inputs: { x: { shape: [5] } }, options: { p: 1, seed: 1 }, terms: 1, fails: "E_CONFIG" },
  ],
  bench: {
    inputs: { x: { shape: [4096, 256] } },
    options: { p: 0.1, seed: 1 },
    bytes: { forward: 8 * 4096 * 256, backward: 8 * 4096 * 256 },
  },
};
