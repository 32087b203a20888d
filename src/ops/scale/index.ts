import { empty } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats, runElementwise } from "../elementwise.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";

const kernel: Kernel = {
  key: "scale.all.forward",
  host: (buffers, ints, floats) => {
    const [x, y] = buffers as [TypedArray, TypedArray];
    for (let i = 0; i < ints[0]!; i++) y[i] = x[i]! * floats[0]! + floats[1]!;
  },
};

/** factor·x + shift without a gradient of its own, for backward passes. */
export function scaled(x: Tensor, factor: number, shift = 0): Tensor {
  const y = empty(x.device, x.shape, { dtype: x.dtype });
  runElementwise(kernel, [packed(x).layout, y.layout], x.size, 2, [factor, shift]);
  return y;
}

/** What `scale` multiplies by, and then adds. */
interface Line {
  readonly factor: number;
  readonly shift: number;
}

const op: Op<{ x: Tensor }, Line, { y: Tensor }> = {
  name: "scale",
  forward: ({ x }, { factor, shift }) => {
    checkFloats("scale", "x", x);
    return { outputs: { y: scaled(x, factor, shift) }, saved: undefined };
  },
  backward: ({ options, grads: { y } }) => ({ x: y && scaled(y, options.factor) }),
};

/**
 * factor·x + shift, element by element, with two plain numbers.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Cost: the bytes of x once read and once written.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const signs = scale(x, 2, -1); // 0 … 1 → −1 … 1
 */
export function scale(x: Tensor, factor: number, shift = 0): Tensor {
  return apply(op, { x }, { factor, shift }).y;
}

/** −x: `scale(x, -1)`. */
export function negate(x: Tensor): Tensor {
  return scale(x, -1);
}

const size = 2 ** 20;

/** How suites see `scale`. */
export const scaleEntry: OpEntry<Line> = {
  kind: "op",
  name: "scale",
  kernels: [kernel],
  run: ({ x }, { factor, shift }) => ({ y: scale(x!, factor, shift) }),
  cases: [0, 1, 3, 17, 33, 65, 127, 4165].map((n) => ({
    name: `n=${n}`,
    inputs: { x: { shape: [n] } },
    options: { factor: -0.3, shift: 1.7 },
    terms: 2,
  })),
  bench: {
    inputs: { x: { shape: [size] } },
    options: { factor: 0.5, shift: 0 },
    bytes: { forward: 8 * size, backward: 8 * size },
  },
};
