/** Exact attention in tiles with a running maximum and sum: no matrix of size T×T, forward or backward. */
import type { Dispatch, Kernel, Slice } from "../../device/device.ts";
import { backwardHost, biasHost, deltaHost, forwardHost, keysHost, queriesHost } from "./host.ts";
import {
  type AttentionProblem,
  checkProblem,
  type HeadRows,
  type IntegerName,
  integerNames,
  type OperandName,
  operandNames,
  paddedBytes,
  problemIntegers,
  type StridedName,
  stridedNames,
  stripBytes,
  structBytes,
  tileBytes,
  tileKeys,
  tileQueries,
  tilesPerRow,
} from "./problem.ts";

/** Outputs and log-sum-exp. */
export const tiledForward: Kernel = { key: "attention.tiled.forward", host: forwardHost };
/** Σ dO·O − dLse, which every backward pass reads. */
export const deltaBackward: Kernel = { key: "attention.delta.backward", host: deltaHost };
/** dQ, dK and dV in one pass, one unit per key head. */
export const tiledBackward: Kernel = { key: "attention.tiled.backward", host: backwardHost };
/** dQ alone, one unit per query tile. */
export const queriesBackward: Kernel = { key: "attention.tiledQueries.backward", host: queriesHost };
/** dK and dV alone, one unit per block of keys. */
export const keysBackward: Kernel = { key: "attention.tiledKeys.backward", host: keysHost };
/** dBias. */
export const biasBackward: Kernel = { key: "attention.bias.backward", host: biasHost };

/** Queries that are scored together, and columns of a strip of the backward passes. */
const panel = 16;
const strip = 64;

/** Keys of one unit of `attention.tiledKeys.backward`. */
const blockKeys = 256;

/** Tokens of one unit of `attention.delta.backward`. */
const deltaTokens = 16;

/** What the forward pass reads and writes. */
export interface ForwardOperands {
  /** `[B,T,HQ,K]` */
  readonly q: HeadRows;
  /** `[B,Tk,HKV,K]`, or a slab of slots with a cache */
  readonly k: HeadRows;
  /** `[B,Tk,HKV,V]`, or a slab of slots with a cache */
  readonly v: HeadRows;
  /** `[B,T,HQ,V]` */
  readonly output: HeadRows;
  /** `[B,T,HQ]`: log Σ exp(score); −Infinity where a query sees no key. */
  readonly lse: Slice;
  /** `[B,T,HQ]`: the largest score of each query, for those who weigh it against something else. */
  readonly rowMax?: Slice | undefined;
}

/** What the backward passes read and write: all of the forward pass and the gradients. */
export interface BackwardOperands extends Omit<ForwardOperands, "output"> {
  readonly output: HeadRows;
  readonly dOutput: HeadRows;
  /** `[B,T,HQ]`, gradients of lse and of rowMax. */
  readonly dLse?: Slice | undefined;
  readonly dRowMax?: Slice | undefined;
  /** `[B,T,HQ]`, room for numbers that the passes share. */
  readonly delta: Slice;
  readonly dQ: HeadRows;
  readonly dK: HeadRows;
  readonly dV: HeadRows;
}

type Operands = Partial<Record<StridedName, HeadRows>> &
  Partial<Record<OperandName, HeadRows | Slice | undefined>>;

/** Pairs of a query and a key that it sees, about. */
export function pairs(problem: AttentionProblem): number {
  const { batch, time, keyTime, queryHeads } = problem.sizes;
  const seen = Math.min(problem.window ?? keyTime, problem.causal ? (keyTime + 1) / 2 : keyTime);
  return batch * queryHeads * time * seen;
}

/** A dispatch of one of the kernels that share the argument block of problem.ts. */
export function dispatchOf(
  kernel: Kernel,
  problem: AttentionProblem,
  operands: Operands,
  own: Partial<Record<IntegerName, number>>,
  cost: Pick<Dispatch, "units" | "work" | "scratchBytes">,
): Dispatch {
  const { keyMask, bias, packed, cache } = problem;
  const named: Operands = {
    ...operands,
    keyMask,
    bias: bias?.slice,
    cuSeqlens: packed?.cuSeqlens,
    slots: cache?.slots,
    lengths: cache?.lengths,
  };
  const sliceOf = (name: OperandName): Slice => {
    const operand = named[name] ?? operands.q!;
    return "slice" in operand ? operand.slice : operand;
  };
  const integers = { ...problemIntegers(problem), blockKeys, ...own };
  const strides = stridedNames.flatMap((name) => {
    const rows = operands[name];
    return rows === undefined ? [0, 0, 0] : [rows.batch, rows.token, rows.head];
  });
  return {
    kernel,
    buffers: operandNames.map(sliceOf),
    ints: [...integerNames.map((name) => integers[name] ?? 0), ...strides],
    floats: [problem.scale],
    ...cost,
  };
}

/**
 * softmax(scale · q kᵀ + bias) v over the keys that each query sees, with its log-sum-exp.
 *
 * Keys are taken `tileKeys` at a time under a running maximum (Milakov and Gimelshein, arXiv 1805.02867v2, algorithm 3;
 * tiles as in Dao, arXiv 2307.08691v1, algorithm 1). A query that sees no key gets zeros and lse −Infinity. Hidden keys may
 * hold anything, NaN included. An output depends on its own query and the keys that this sees, bit for bit.
 * Costs 2·(K + V) flops and one exp per query and key seen; no memory but the outputs.
 *
 * @throws ShapeError, ConfigError where the job makes no sense.
 */
export function attentionForward(problem: AttentionProblem, operands: ForwardOperands): Dispatch {
  checkProblem("attention.tiled.forward", problem);
  const { batch, queryHeads, keyWidth, valueWidth } = problem.sizes;
  const wide = 4 * panel;
  const scratchBytes =
    structBytes + tileBytes(problem, panel, wide) + stripBytes(problem, panel, wide, valueWidth + 3);
  return dispatchOf(
    tiledForward,
    problem,
    { ...operands },
    { hasRowMax: Number(operands.rowMax !== undefined) },
    {
      units: batch * queryHeads * tilesPerRow(problem),
      work: pairs(problem) * (keyWidth + valueWidth),
      scratchBytes,
    },
  );
}

function gradientScratch(problem: AttentionProblem): number {
  const { keyWidth, valueWidth } = problem.sizes;
  const wide = paddedBytes(strip);
  const queries = tileQueries(problem);
  const columns = stripBytes(problem, strip, wide, keyWidth + valueWidth) + tileKeys * wide;
  const rows = queries * (paddedBytes(keyWidth) + paddedBytes(valueWidth)) + 4 * 4 * (queries + panel);
  return structBytes + tileBytes(problem, strip, wide) + columns + rows + panel * paddedBytes(tileKeys);
}

function backwardOwn(operands: BackwardOperands): Partial<Record<IntegerName, number>> {
  return { hasRowMax: Number(operands.dRowMax !== undefined), hasDLse: Number(operands.dLse !== undefined) };
}

/**
 * Gradients of q, k and v, with those of lse and of the largest score taken in where given.
 *
 * Tiles are recomputed from the saved lse. Where key heads keep `threads` threads busy, one pass over all tiles gives the
 * three; otherwise one pass by query tiles and one by blocks of keys, 7 products instead of 5. Every sum runs in the same
 * order in both, so the choice changes no bit. Extra memory: `delta` and one tile.
 */
export function attentionBackward(
  problem: AttentionProblem,
  operands: BackwardOperands,
  threads: number,
): readonly Dispatch[] {
  checkProblem("attention.tiled.backward", problem);
  const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = problem.sizes;
  const own = backwardOwn(operands);
  const product = pairs(problem) * ((keyWidth + valueWidth) / 2);
  const cost = (units: number, products: number) => ({
    units,
    work: products * product,
    scratchBytes: gradientScratch(problem),
  });
  const delta = dispatchOf(deltaBackward, problem, { ...operands }, own, {
    units: Math.ceil((batch * time) / deltaTokens),
    work: batch * time * queryHeads * valueWidth,
    scratchBytes: 0,
  });
  const heads = batch * keyHeads;
  const rounds = Math.ceil(heads / threads);
  const onePass = 7 * heads >= 5 * rounds * threads;
  if (onePass) return [delta, dispatchOf(tiledBackward, problem, { ...operands }, own, cost(heads, 5))];
  const tiles = batch * queryHeads * tilesPerRow(problem);
  const blocks = heads * Math.ceil(keyTime / blockKeys);
  return [
    delta,
    dispatchOf(queriesBackward, problem, { ...operands }, own, cost(tiles, 3)),
    dispatchOf(keysBackward, problem, { ...operands }, own, cost(blocks, 4)),
  ];
}

/**
 * The gradient of the bias `[B or 1, HQ or 1, T, Tk]`, contiguous, summed over the axes whose stride in the bias is 0;
 * zeros where a query does not see a key. Reads the `delta` that `attentionBackward` wrote.
 */
export function attentionBiasBackward(
  problem: AttentionProblem,
  operands: Omit<BackwardOperands, "dQ" | "dK" | "dV"> & { readonly dBias: Slice },
): Dispatch {
  const { batch, time, keyTime, queryHeads, keyWidth, valueWidth } = problem.sizes;
  const batches = problem.bias?.batch === 0 ? 1 : batch;
  const heads = problem.bias?.head === 0 ? 1 : queryHeads;
  const own = {
    ...backwardOwn({ ...operands, dQ: operands.q, dK: operands.k, dV: operands.v }),
    dBiasHead: heads === 1 ? 0 : time * keyTime,
    dBiasBatch: batches === 1 ? 0 : heads * time * keyTime,
  };
  return dispatchOf(biasBackward, problem, { ...operands }, own, {
    units: batches * heads * tilesPerRow(problem),
    work: pairs(problem) * (keyWidth + valueWidth),
    scratchBytes: gradientScratch(problem),
  });
}
