/** Attention with its whole matrix of weights in memory: what papers timed as softmax, and what analysis looks at. */
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { matrixHost } from "./host.ts";
import {
  type AttentionProblem,
  checkProblem,
  type HeadRows,
  paddedBytes,
  structBytes,
  tileKeys,
  tilesPerRow,
} from "./problem.ts";
import { dispatchOf } from "./tiled.ts";

/** Outputs and weights. */
export const matrixForward: Kernel = { key: "attention.matrix.forward", host: matrixHost };

/** What the form reads and writes. */
export interface MatrixOperands {
  /** `[B,T,HQ,K]` */
  readonly q: HeadRows;
  /** `[B,Tk,HKV,K]` */
  readonly k: HeadRows;
  /** `[B,Tk,HKV,V]` */
  readonly v: HeadRows;
  /** `[B,T,HQ,V]` */
  readonly output: HeadRows;
  /** `[B,HQ,T,Tk]`, contiguous: rows sum to 1, or are zeros where a query sees no key. */
  readonly weights: Slice;
}

/**
 * softmax(scale · q kᵀ + bias) v with the weights written out: every score is computed, then those hidden set to 0.
 *
 * Costs 2·B·HQ·T·Tk·(K + V) flops whatever the mask, and 4·B·HQ·T·Tk bytes.
 */
export function attentionMatrix(problem: AttentionProblem, operands: MatrixOperands): Dispatch {
  checkProblem("attention.matrix.forward", problem);
  const { batch, time, keyTime, queryHeads, keyWidth, valueWidth } = problem.sizes;
  const scratchBytes = structBytes + keyWidth * paddedBytes(tileKeys) + tileKeys * paddedBytes(valueWidth);
  return dispatchOf(
    matrixForward,
    problem,
    { ...operands },
    {},
    {
      units: batch * queryHeads * tilesPerRow(problem),
      work: batch * queryHeads * time * keyTime * (keyWidth + valueWidth),
      scratchBytes,
    },
  );
}
