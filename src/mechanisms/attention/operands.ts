/** Tensors as the kernels of attention read them, and what their axes must be. */
import { copyInto } from "../../autograd/move.ts";
import { empty, type Tensor } from "../../autograd/tensor.ts";
import { DtypeError } from "../../errors.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { solveAxes } from "../../tensor/axes.ts";
import type { AttentionProblem, Bias, HeadRows } from "./problem.ts";

/** Inputs of attention by symbol. */
export type AttentionInputs = {
  /** `[B,T,HQ,K]` */
  readonly q: Tensor;
  /** `[B,Tk,HKV,K]` */
  readonly k: Tensor;
  /** `[B,Tk,HKV,V]` */
  readonly v: Tensor;
  /** uint8 or int32 `[B,Tk]`: keys whose entry is 0 are seen by nobody. */
  readonly mask?: Tensor | undefined;
  /** `[B or 1, HQ or 1, T, Tk]`, added to the scaled scores. */
  readonly bias?: Tensor | undefined;
  /** int32 `[N+1]`: sequences packed in one batch row. */
  readonly cuSeqlens?: Tensor | undefined;
};

/** Which keys count for a query, and how much. */
export interface AttentionOptions {
  /** True unless given. */
  readonly causal?: boolean | undefined;
  /** A causal query sees its own position and the window − 1 before it. */
  readonly window?: number | undefined;
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number | undefined;
  /** Causal query i sees keys up to i + queryOffset; Tk − T unless given, so that the last query sees all. */
  readonly queryOffset?: number | undefined;
}

/** An operand `[B,T,H,W]` where it lies; copied only where its last axis has gaps. */
export function headRowsOf(x: Tensor): HeadRows {
  let { layout } = x;
  if (x.shape[3] !== 1 && layout.strides[3] !== 1) {
    const copy = empty(x.device, x.shape, { dtype: x.dtype });
    copyInto(copy, x);
    layout = copy.layout;
  }
  const [batch, token, head] = layout.strides as [number, number, number, number];
  return { slice: layout, batch, token, head };
}

/** Throws a DtypeError for a mask of floats. */
export function checkMask(who: string, mask: Tensor | undefined): void {
  if (mask === undefined || mask.dtype === "int32" || mask.dtype === "uint8") return;
  throw new DtypeError(`[${who}] mask holds 0 and 1: expected int32 or uint8 [B, Tk], got ${mask.dtype}`);
}

/** `[B or 1, HQ or 1, T, Tk]` with its rows in one piece. */
function biasOf(bias: Tensor): Bias {
  const rows = bias.shape[3] === 1 || bias.layout.strides[3] === 1 ? bias : packed(bias);
  const [batch, head, row] = rows.layout.strides as [number, number, number, number];
  return {
    slice: rows.layout,
    batch: bias.shape[0] === 1 ? 0 : batch,
    head: bias.shape[1] === 1 ? 0 : head,
    row,
  };
}

/**
 * The problem that inputs and options state.
 *
 * @throws ShapeError where axes disagree, DtypeError for a mask of floats.
 */
export function problemOf(who: string, inputs: AttentionInputs, options: AttentionOptions): AttentionProblem {
  const { q, k, v, mask, bias, cuSeqlens } = inputs;
  const sizes = solveAxes(who, {
    q: { shape: q.shape, axes: "B T HQ K" },
    k: { shape: k.shape, axes: "B Tk HKV K" },
    v: { shape: v.shape, axes: "B Tk HKV V" },
    mask: mask && { shape: mask.shape, axes: "B Tk" },
    bias: bias && { shape: bias.shape, axes: "B? HQ? T Tk" },
  });
  checkMask(who, mask);
  const { causal = true, window, scale = sizes.K ** -0.5 } = options;
  return {
    sizes: {
      batch: sizes.B,
      time: sizes.T,
      keyTime: sizes.Tk,
      queryHeads: sizes.HQ,
      keyHeads: sizes.HKV,
      keyWidth: sizes.K,
      valueWidth: sizes.V,
    },
    scale,
    causal,
    window,
    offset: options.queryOffset ?? (cuSeqlens === undefined ? sizes.Tk - sizes.T : 0),
    keyMask: mask && packed(mask).layout,
    bias: bias && biasOf(bias),
    packed: cuSeqlens && { cuSeqlens: packed(cuSeqlens).layout, count: cuSeqlens.size - 1 },
  };
}
