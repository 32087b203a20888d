import { empty } from "../../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../../device/device.ts";
import { DtypeError } from "../../errors.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { broadcastShapes, sameShape } from "../../tensor/shape.ts";
import { checkFloats, runElementwise } from "../elementwise.ts";
import type { Tensor } from "../op.ts";
import { maximumRank, sideBySide } from "./broadcast.ts";

/** One of the four operations, without gradients, on operands of any layout that broadcast. */
export interface Arithmetic {
  readonly kernels: readonly [dense: Kernel, strided: Kernel];
  readonly compute: (a: Tensor, b: Tensor) => Tensor;
}

type Combine = (a: number, b: number) => number;

function denseHost(combine: Combine): HostKernel {
  return (buffers, ints) => {
    const [a, b, y] = buffers as [TypedArray, TypedArray, TypedArray];
    for (let i = 0; i < ints[0]!; i++) y[i] = combine(a[i]!, b[i]!);
  };
}

function stridedHost(combine: Combine): HostKernel {
  return (buffers, ints) => {
    const [a, b, y] = buffers as [TypedArray, TypedArray, TypedArray];
    const index = new Array<number>(maximumRank).fill(0);
    let fromA = 0;
    let fromB = 0;
    for (let i = 0; i < ints[0]!; i++) {
      y[i] = combine(a[fromA]!, b[fromB]!);
      for (let axis = maximumRank - 1; axis >= 0; axis--) {
        const length = ints[1 + axis]!;
        fromA += ints[7 + axis]!;
        fromB += ints[13 + axis]!;
        if (++index[axis]! < length) break;
        fromA -= length * ints[7 + axis]!;
        fromB -= length * ints[13 + axis]!;
        index[axis] = 0;
      }
    }
  };
}

/** Builds one of the four. */
export function arithmetic(name: string, combine: Combine): Arithmetic {
  const dense: Kernel = { key: `${name}.dense.forward`, host: denseHost(combine) };
  const strided: Kernel = { key: `${name}.strided.forward`, host: stridedHost(combine) };
  const compute = (a: Tensor, b: Tensor): Tensor => {
    checkFloats(name, "a", a);
    checkFloats(name, "b", b);
    const { device, dtype } = a;
    if (b.dtype !== dtype) {
      throw new DtypeError(
        `[${name}] a and b have one dtype: expected ${dtype} twice, got ${dtype} and ${b.dtype}`,
      );
    }
    if (sameShape(a.shape, b.shape) && a.isContiguous && b.isContiguous) {
      const y = empty(device, a.shape, { dtype });
      runElementwise(dense, [a.layout, b.layout, y.layout], y.size, 2);
      return y;
    }
    const shape = broadcastShapes(name, a.shape, b.shape);
    const y = empty(device, shape, { dtype });
    if (y.size === 0) return y;
    device.run({
      kernel: strided,
      buffers: [a.layout, b.layout, y.layout],
      ints: [y.size, ...sideBySide(name, shape, a, b)],
      floats: [],
      units: (y.size + 4095) >>> 12,
      work: y.size * 2,
      scratchBytes: 64,
    });
    return y;
  };
  return { kernels: [dense, strided], compute };
}
