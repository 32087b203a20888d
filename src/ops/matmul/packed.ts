import { rowsOf } from "../../autograd/rows.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import { UnsupportedError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { sizeOf } from "../../tensor/shape.ts";
import { apply, type Op } from "../op.ts";
import { panelWidth } from "./host.ts";
import { packedKernel, packKernel } from "./kernels.ts";
import { planPacked } from "./plan.ts";
import { withUnitStride } from "./product.ts";

/** Weights laid out for `linearPacked`: panels of 16 outputs, each streamed from end to end. */
export interface PackedWeights {
  readonly out: number;
  readonly in: number;
  /** `[ceil(out/16), in, 16]`, padded with zeros. */
  readonly panels: Tensor;
}

/**
 * Weights packed once for products with few rows at a time, as generation makes them.
 *
 * `weight [out, in]`, any strides → panels that live until `panels.dispose()`. Later changes of the weight are not
 * seen. Cost: the bytes of the weight once read and once written.
 *
 * @example
 * const packed = packWeights(weight);
 * const y = linearPacked(x, packed, bias);
 */
export function packWeights(weight: Tensor): PackedWeights {
  const sizes = solveAxes("packWeights", { weight: { shape: weight.shape, axes: "out in" } });
  const count = Math.ceil(sizes.out / panelWidth);
  const shape = [count, sizes.in, panelWidth];
  const panels = empty(weight.device, shape, { dtype: weight.dtype, persistent: true });
  const source = withUnitStride(weight);
  const [row, col] = source.layout.strides as [number, number];
  weight.device.run({
    kernel: packKernel,
    buffers: [source.layout, panels.layout],
    ints: [sizes.out, sizes.in, row, col],
    floats: [],
    units: count,
    work: panels.size,
    scratchBytes: 0,
  });
  return { out: sizes.out, in: sizes.in, panels };
}

type Inputs = { x: Tensor; panels: Tensor; bias?: Tensor | undefined };

const op: Op<Inputs, number, { y: Tensor }> = {
  name: "linearPacked",
  forward: ({ x, panels, bias }, out) => {
    const rows = rowsOf(x);
    const width = panels.shape[1]!;
    const count = sizeOf(x.shape.slice(0, -1));
    const y = empty(x.device, [...x.shape.slice(0, -1), out], { dtype: x.dtype });
    const plan = planPacked(count, out, width);
    x.device.run({
      kernel: packedKernel,
      buffers: [rows.slice, panels.layout, y.layout, bias?.layout ?? y.layout],
      ints: [
        ...[count, out, width, rows.stride, out, 0, bias ? 1 : 0],
        ...[plan.rows, plan.cols, plan.steps],
      ],
      floats: [],
      units: plan.units,
      work: count * out * width,
      scratchBytes: 0,
    });
    return { outputs: { y }, saved: undefined };
  },
  backward: () => {
    throw new UnsupportedError(
      "[linearPacked] packed weights have no gradient: expected a call under noGrad",
      "Train with matmul(x, weight, { transposeB: true, bias })",
    );
  },
};

/**
 * Y = X·Wᵀ + bias on packed weights, without gradients.
 *
 * `x [..., in]`, `bias [out]` → `[..., out]`. The bits equal those of `matmul(x, weight, { transposeB: true, bias })`, a
 * row's whatever the other rows. Cost: one row reads the weights at memory speed, many rows compute near the peak.
 *
 * @throws ShapeError when x or bias do not fit the weights; UnsupportedError when a gradient is asked for.
 * @example
 * const y = noGrad(() => linearPacked(x, packWeights(weight), bias));
 */
export function linearPacked(x: Tensor, weights: PackedWeights, bias?: Tensor): Tensor {
  solveAxes(
    "linearPacked",
    { x: { shape: x.shape, axes: "… in" }, bias: bias && { shape: bias.shape, axes: "out" } },
    { in: weights.in, out: weights.out },
  );
  return apply(op, { x, panels: weights.panels, bias }, weights.out).y;
}
