import { rowsOf } from "../../autograd/rows.ts";
import { empty, Tensor } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { checkFloats } from "../elementwise.ts";
import type { Op } from "../op.ts";
import { layerBackward, layerForward, weightModes } from "./host.ts";
import { blocksOf, checkEps, weightGradient } from "./weights.ts";

const forwardKernel: Kernel = { key: "layerNorm.rows.forward", host: layerForward };
const backwardKernel: Kernel = { key: "layerNorm.rows.backward", host: layerBackward };

/** Kernels of the layer norm. */
export const layerNormKernels: readonly Kernel[] = [forwardKernel, backwardKernel];

/** Options of `layerNorm`. */
export interface LayerNormOptions {
  /** Added to the variance, inside the root; 1e-5 unless given. */
  readonly eps?: number;
}

type Inputs = { x: Tensor; weight?: Tensor | undefined; bias?: Tensor | undefined };
type LayerNorm = Op<Inputs, LayerNormOptions, { y: Tensor }, Tensor>;

function modeOf(weight: Tensor | undefined): number {
  return weight === undefined ? weightModes.none : weightModes.plain;
}

const forward: LayerNorm["forward"] = ({ x, weight, bias }, { eps = 1e-5 }) => {
  checkFloats("layerNorm", "x", x);
  checkEps("layerNorm", eps);
  const { D } = solveAxes("layerNorm", {
    x: { shape: x.shape, axes: "… D" },
    weight: weight && { shape: weight.shape, axes: "D" },
    bias: bias && { shape: bias.shape, axes: "D" },
  });
  const { device, dtype } = x;
  const y = empty(device, x.shape, { dtype });
  const rows = D === 0 ? 0 : x.size / D;
  const kept = empty(device, [rows, 2], { dtype });
  if (y.size > 0) {
    const { slice, stride } = rowsOf(x);
    device.run({
      kernel: forwardKernel,
      buffers: [
        slice,
        weight === undefined ? y.layout : packed(weight).layout,
        bias === undefined ? y.layout : packed(bias).layout,
        y.layout,
        kept.layout,
      ],
      ints: [D, stride, modeOf(weight), bias === undefined ? 0 : 1, rows],
      floats: [eps],
      units: rows,
      work: x.size * 5,
      scratchBytes: 4 * D,
    });
  }
  return { outputs: { y }, saved: kept };
};

const backward: LayerNorm["backward"] = ({ inputs: { x, weight, bias }, grads: { y: dy }, saved: kept }) => {
  if (dy === undefined) return {};
  const { device, dtype } = x;
  const D = x.shape[x.rank - 1]!;
  const rows = kept.shape[0]!;
  const learns = weight !== undefined || bias !== undefined ? 1 : 0;
  const dx = empty(device, x.shape, { dtype });
  const blocks = blocksOf(rows, D, learns);
  const partial = empty(device, [blocks.units * 2 * D * learns], { dtype });
  if (x.size > 0) {
    const { slice, stride } = rowsOf(x);
    const w = weight === undefined ? dx.layout : packed(weight).layout;
    device.run({
      kernel: backwardKernel,
      buffers: [slice, w, kept.layout, packed(dy).layout, dx.layout, partial.layout],
      ints: [D, stride, modeOf(weight), rows, blocks.length, learns],
      floats: [],
      units: blocks.units,
      work: x.size * 8,
      scratchBytes: 4 * D + 8,
    });
  }
  if (learns === 0) return { x: dx };
  const both = weightGradient(partial, blocks.units, [2, D]).layout;
  const strides = [1];
  return {
    x: dx,
    weight: weight && new Tensor({ ...both, strides }, [D]),
    bias: bias && new Tensor({ ...both, offset: both.offset + D, strides }, [D]),
  };
};

/** The layer norm with its gradients. */
export const layerNormOp: LayerNorm = { name: "layerNorm", forward, backward };
