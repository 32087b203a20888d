/** Sums over one axis of a dense tensor, in a tree that the sizes alone decide. */
import { empty } from "../../autograd/tensor.ts";
import type { Device, HostKernel, Kernel, Slice } from "../../device/device.ts";
import type { DType, TypedArray } from "../../tensor/dtype.ts";

/** A dense tensor as [outer, n, inner]: what is summed is the axis in the middle. */
export interface Middle {
  readonly outer: number;
  readonly n: number;
  readonly inner: number;
}

/** y [outer, blocks, inner] = scale · Σ over a block of x, or of x·z. */
function sumHost(product: boolean, isRows: boolean): HostKernel {
  return (buffers, ints, floats) => {
    const [x, z, y] = buffers as [TypedArray, TypedArray, TypedArray];
    const [n, inner, block, blocks] = isRows
      ? [ints[0]!, 1, ints[1]!, ints[2]!]
      : [ints[0]!, ints[1]!, ints[2]!, ints[3]!];
    const outer = ints[isRows ? 3 : 5]!;
    for (let piece = 0; piece < outer * blocks; piece++) {
      const first = Math.floor(piece / blocks) * n + (piece % blocks) * block;
      const last = Math.min(first + block, (Math.floor(piece / blocks) + 1) * n);
      for (let c = 0; c < inner; c++) {
        let sum = 0;
        for (let i = first; i < last; i++) sum += x[i * inner + c]! * (product ? z[i * inner + c]! : 1);
        y[piece * inner + c] = sum * floats[0]!;
      }
    }
  };
}

const kernels = {
  rows: { key: "sum.rows.forward", host: sumHost(false, true) },
  rowsProduct: { key: "sum.rowsProduct.forward", host: sumHost(true, true) },
  columns: { key: "sum.columns.forward", host: sumHost(false, false) },
  columnsProduct: { key: "sum.columnsProduct.forward", host: sumHost(true, false) },
} satisfies Record<string, Kernel>;

/** Every kernel that sums. */
export const sumKernels: readonly Kernel[] = Object.values(kernels);

/** Elements summed in one run along rows, and rows summed in one run along columns. */
const rowBlock = 8192;
const columnBlock = 256;

function blockOf(n: number, block: number): number {
  return n <= 2 * block ? Math.max(n, 1) : block;
}

/** scale · Σ x, or scale · Σ x·z, over the middle axis of dense operands: a new storage of outer·inner elements. */
export function sumMiddle(
  device: Device,
  dtype: DType,
  x: Slice,
  z: Slice | undefined,
  middle: Middle,
  scale: number,
): Slice {
  const { outer, n, inner } = middle;
  const block = blockOf(n, inner === 1 ? rowBlock : columnBlock);
  const blocks = Math.ceil(n / block);
  const partial = empty(device, [outer * blocks * inner], { dtype }).layout;
  const tiles = (inner + 1023) >>> 10;
  const isRows = inner === 1;
  const product = z !== undefined;
  device.run({
    kernel: isRows
      ? product
        ? kernels.rowsProduct
        : kernels.rows
      : product
        ? kernels.columnsProduct
        : kernels.columns,
    buffers: [x, z ?? x, partial],
    ints: isRows ? [n, block, blocks, outer] : [n, inner, block, blocks, tiles, outer],
    floats: [blocks === 1 ? scale : 1],
    units: outer * blocks * (isRows ? 1 : tiles),
    work: outer * n * inner,
    scratchBytes: 0,
  });
  if (blocks === 1) return partial;
  const total = sumMiddle(device, dtype, partial, undefined, { outer, n: blocks, inner }, scale);
  device.release(partial.storage);
  return total;
}
