import { rowsOf } from "../../autograd/rows.ts";
import { empty, zeros } from "../../autograd/tensor.ts";
import type { Kernel } from "../../device/device.ts";
import { ConfigError, checkWord } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { packed } from "../contiguous/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";
import { shortConvCases } from "./cases.ts";
import { backwardHost, flagBits, forwardHost } from "./host.ts";

const forwardKernel: Kernel = { key: "shortConv.block.forward", host: forwardHost };
const backwardKernel: Kernel = { key: "shortConv.block.backward", host: backwardHost };

type Inputs = {
  x: Tensor;
  weight: Tensor;
  bias?: Tensor | undefined;
  initialState?: Tensor | undefined;
  cuSeqlens?: Tensor | undefined;
};

/** Options of `shortConv`. */
export interface ShortConvOptions {
  readonly activation?: "silu" | "none";
}

interface Job {
  readonly sequences: number;
  readonly time: number;
  readonly channels: number;
  readonly width: number;
}

function solve(inputs: Inputs): Job {
  const { x, weight, bias, initialState, cuSeqlens } = inputs;
  const sizes = solveAxes("shortConv", {
    x: { shape: x.shape, axes: "B T C" },
    weight: { shape: weight.shape, axes: "C W" },
    bias: bias && { shape: bias.shape, axes: "C" },
  });
  const sequences = cuSeqlens === undefined ? sizes.B : cuSeqlens.size - 1;
  solveAxes(
    "shortConv",
    { initialState: initialState && { shape: initialState.shape, axes: "N past C" } },
    { N: sequences, past: sizes.W - 1, C: sizes.C },
  );
  if (sizes.W < 1) throw new ConfigError("[shortConv] weight [C, W] has W >= 1, got 0");
  if (cuSeqlens !== undefined && sizes.B !== 1) {
    throw new ConfigError(`[shortConv] packed sequences share one batch row: expected B 1, got B ${sizes.B}`);
  }
  return { sequences, time: sizes.T, channels: sizes.C, width: sizes.W };
}

function flags(inputs: Inputs, options: ShortConvOptions, final: boolean): number {
  return (
    (inputs.bias ? flagBits.bias : 0) |
    (inputs.initialState ? flagBits.initial : 0) |
    (final ? flagBits.final : 0) |
    (inputs.cuSeqlens ? flagBits.packed : 0) |
    (options.activation === "silu" ? flagBits.silu : 0)
  );
}

const op: Op<Inputs, ShortConvOptions, { y: Tensor; finalState: Tensor }> = {
  name: "short-conv",
  forward(inputs, options) {
    const { sequences, time, channels, width } = solve(inputs);
    const { device, dtype } = inputs.x;
    const y = empty(device, inputs.x.shape, { dtype });
    const finalState = empty(device, [sequences, width - 1, channels], { dtype });
    const x = rowsOf(inputs.x);
    const none = y.layout;
    device.run({
      kernel: forwardKernel,
      buffers: [
        x.slice,
        packed(inputs.weight).layout,
        inputs.bias ? packed(inputs.bias).layout : none,
        inputs.initialState ? packed(inputs.initialState).layout : none,
        inputs.cuSeqlens?.layout ?? none,
        y.layout,
        finalState.layout,
      ],
      ints: [sequences, time, channels, width, x.stride, channels, flags(inputs, options, true)],
      floats: [],
      units: sequences * Math.ceil(channels / 16),
      work: y.size * width * 2,
      scratchBytes: width * 16,
    });
    return { outputs: { y, finalState }, saved: undefined };
  },
  backward({ inputs, options, grads }) {
    const { sequences, time, channels, width } = solve(inputs);
    const { device, dtype } = inputs.x;
    const x = rowsOf(inputs.x);
    const dx = empty(device, inputs.x.shape, { dtype });
    const dWeight = empty(device, inputs.weight.shape, { dtype });
    const dBias = inputs.bias && empty(device, inputs.bias.shape, { dtype });
    const dInitial = inputs.initialState && empty(device, inputs.initialState.shape, { dtype });
    const dy = grads.y ? rowsOf(grads.y) : undefined;
    const none = dx.layout;
    // Without a gradient of y only the carried state sends one back: zeros stand in for it, one row read again and again.
    const silent = dy ?? { slice: zeroRow(inputs.x, channels).layout, stride: 0 };
    device.run({
      kernel: backwardKernel,
      buffers: [
        x.slice,
        packed(inputs.weight).layout,
        inputs.bias ? packed(inputs.bias).layout : none,
        inputs.initialState ? packed(inputs.initialState).layout : none,
        inputs.cuSeqlens?.layout ?? none,
        silent.slice,
        grads.finalState ? packed(grads.finalState).layout : none,
        dx.layout,
        dWeight.layout,
        dBias?.layout ?? none,
        dInitial?.layout ?? none,
      ],
      ints: [
        sequences,
        time,
        channels,
        width,
        x.stride,
        silent.stride,
        flags(inputs, options, grads.finalState !== undefined),
      ],
      floats: [],
      units: Math.ceil(channels / 16),
      work: dx.size * width * 5,
      scratchBytes: 4 * (3 * width + 1) * 16,
    });
    return { x: dx, weight: dWeight, bias: dBias, initialState: dInitial };
  },
};

function zeroRow(x: Tensor, channels: number): Tensor {
  return zeros(x.device, [channels], { dtype: x.dtype });
}

/**
 * Causal depthwise convolution over time, the short one in front of most recurrent mixers.
 *
 * y_t = act(bias + Σ_j weight_j ∘ x_{t−W+1+j}), j = 0 … W−1 (Mamba, arXiv 2312.00752v2, figure 3).
 *
 * Inputs: `x [B, T, C]`, `weight [C, W]`, `bias [C]`, `initialState [B, W−1, C]` (the tokens before, oldest first;
 * zeros where absent), `cuSeqlens int32 [N+1]` with B = 1 (the state then is `[N, W−1, C]`). Pieces may be shorter
 * than the kernel. Returns `y [B, T, C]` and `finalState`. Gradients by x, weight, bias and initialState.
 * Cost: 2·W·B·T·C flop, the bytes of x and y once.
 *
 * @throws ShapeError when axes disagree; ConfigError when packed sequences come with B > 1.
 * @example
 * const weight = zeros(device, [D, 4]);
 * const { y, finalState } = shortConv({ x, weight }, { activation: "silu" });
 */
export function shortConv(inputs: Inputs, options: ShortConvOptions = {}): { y: Tensor; finalState: Tensor } {
  checkWord("shortConv", "activation", options.activation, ["silu", "none"]);
  return apply(op, inputs, options);
}

/** How suites see `shortConv`. */
export const shortConvEntry: OpEntry<ShortConvOptions> = {
  kind: "op",
  name: "short-conv",
  kernels: [forwardKernel, backwardKernel],
  run: (inputs, options) => ({ ...shortConv(inputs as unknown as Inputs, options) }),
  ...shortConvCases,
};
