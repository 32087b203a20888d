import { checkTensor, checkWord } from "../../errors.ts";
import { apply, type OpEntry, type Tensor } from "../op.ts";
import { l2NormCases, layerNormCases, normBench, rmsNormCases } from "./cases.ts";
import { type LayerNormOptions, layerNormKernels, layerNormOp } from "./layer-norm.ts";
import {
  type GatedRmsNormOptions,
  l2NormKernels,
  makeRmsNorm,
  type RmsNormOptions,
  rmsNormKernels,
} from "./rms-norm.ts";

export type { LayerNormOptions } from "./layer-norm.ts";
export type { GatedRmsNormOptions, RmsNormOptions } from "./rms-norm.ts";

const rmsNormOp = /* @__PURE__ */ makeRmsNorm("rmsNorm");
const l2NormOp = /* @__PURE__ */ makeRmsNorm("l2Norm");

/**
 * x · w / √(mean(x²) + eps) over the last axis (Zhang & Sennrich, arXiv 1910.07467v1, eq. 4).
 *
 * `x [..., D]`, `weight [D]` (ones where absent; 1 + weight with `zeroCentered`) → the shape of x. With `groups` each
 * of that many parts of the last axis is normalised by itself, as in Mamba-2; a norm per head of `[B, T, H, V]` with
 * one `weight [V]` for all heads needs no groups. Cost: x read and y written once; backward reads x and dy, writes dx.
 *
 * @throws ShapeError when shapes disagree or groups do not divide D, ConfigError for eps <= 0, DtypeError.
 * @example
 * const y = rmsNorm(x, gain, { eps: 1e-5 });
 */
export function rmsNorm(x: Tensor, weight?: Tensor, options: RmsNormOptions = {}): Tensor {
  return apply(rmsNormOp, { x, weight }, { ...options, norm: "mean" }).y;
}

/**
 * RMS norm with a gate a(z), a = silu or sigmoid: norm(x)·w·a(z), or with order `gate-first` norm(x·a(z))·w
 * (the gated norm of Mamba-2, arXiv 2405.21060v1, §7, and of gated DeltaNet, arXiv 2412.06464v2, fig. 1).
 *
 * `x`, `gate [..., D]`, `weight [D]` as in `rmsNorm` → the shape of x. One pass: nothing between is kept.
 *
 * @throws ShapeError when shapes disagree or groups do not divide D, ConfigError for eps <= 0, DtypeError.
 * @example
 * const y = gatedRmsNorm(x, gate, gain, { activation: "sigmoid" });
 */
export function gatedRmsNorm(
  x: Tensor,
  gate: Tensor,
  weight?: Tensor,
  options: GatedRmsNormOptions = {},
): Tensor {
  checkTensor("gatedRmsNorm", "gate", gate);
  checkWord("gatedRmsNorm", "activation", options.activation, ["silu", "sigmoid"]);
  checkWord("gatedRmsNorm", "order", options.order, ["norm-first", "gate-first"]);
  return apply(rmsNormOp, { x, weight, gate }, { ...options, norm: "mean" }).y;
}

/**
 * (x − mean) · w / √(variance + eps) + b over the last axis (Ba et al., arXiv 1607.06450v1, eq. 4); the variance is
 * that of the row, not of a sample.
 *
 * `x [..., D]`, `weight [D]` (ones where absent), `bias [D]` (none where absent) → the shape of x. The variance is
 * summed after the mean is known, so a large mean costs no digits. Cost: as `rmsNorm`.
 *
 * @throws ShapeError when shapes disagree, ConfigError for eps <= 0, DtypeError for whole numbers.
 * @example
 * const y = layerNorm(x, gain, bias);
 */
export function layerNorm(x: Tensor, weight?: Tensor, bias?: Tensor, options: LayerNormOptions = {}): Tensor {
  return apply(layerNormOp, { x, weight, bias }, options).y;
}

/**
 * x / √(Σ x² + eps) over the last axis: length 1, or less near zero, where the gradient stays finite.
 *
 * `x [..., D]` → the same shape. eps is 1e-6 unless given and stands inside the root.
 *
 * @throws ShapeError when x is a scalar, ConfigError for eps <= 0, DtypeError for whole numbers.
 * @example
 * const unit = l2Norm(k); // [B, T, H, K]
 */
export function l2Norm(x: Tensor, options: { readonly eps?: number } = {}): Tensor {
  return apply(l2NormOp, { x }, { ...options, norm: "sum" }).y;
}

/** How suites see `rmsNorm` and `gatedRmsNorm`: gated where a case has a gate. */
export const rmsNormEntry: OpEntry<GatedRmsNormOptions> = {
  kind: "op",
  name: "rmsNorm",
  kernels: rmsNormKernels,
  run: ({ x, weight, gate }, options) => ({
    y: gate === undefined ? rmsNorm(x!, weight, options) : gatedRmsNorm(x!, gate, weight, options),
  }),
  cases: rmsNormCases,
  bench: normBench(["weight"]),
};

/** How suites see `gatedRmsNorm` at speed. */
export const gatedRmsNormEntry: OpEntry<GatedRmsNormOptions> = {
  ...rmsNormEntry,
  name: "gatedRmsNorm",
  cases: rmsNormCases.filter(({ inputs }) => inputs["gate"] !== undefined),
  bench: normBench(["weight", "gate"]),
};

/** How suites see `layerNorm`. */
export const layerNormEntry: OpEntry<LayerNormOptions> = {
  kind: "op",
  name: "layerNorm",
  kernels: layerNormKernels,
  run: ({ x, weight, bias }, options) => ({ y: layerNorm(x!, weight, bias, options) }),
  cases: layerNormCases,
  bench: normBench(["weight", "bias"]),
};

/** How suites see `l2Norm`. */
export const l2NormEntry: OpEntry<{ readonly eps?: number }> = {
  kind: "op",
  name: "l2Norm",
  kernels: l2NormKernels,
  run: ({ x }, options) => ({ y: l2Norm(x!, options) }),
  cases: l2NormCases,
  bench: normBench([]),
};
