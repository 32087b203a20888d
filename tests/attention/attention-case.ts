/** Jobs of attention on any device: random ones, and how they are laid out, run and read back. */
import assert from "node:assert/strict";
import type { Device, Slice } from "../../src/device/device.ts";
import type { AttentionProblem, AttentionSizes, HeadRows } from "../../src/mechanisms/attention/attention.ts";
import {
  attentionBackward,
  attentionBiasBackward,
  attentionForward,
} from "../../src/mechanisms/attention/attention.ts";
import type { DType } from "../../src/tensor/dtype.ts";
import { allocateArray } from "../../src/tensor/dtype.ts";

/** Inputs of one job by name, float64, every axis contiguous. */
export interface AttentionCase {
  readonly sizes: AttentionSizes;
  readonly scale: number;
  readonly causal: boolean;
  readonly offset?: number;
  readonly window?: number;
  readonly keyMask?: { readonly dtype: "uint8" | "int32"; readonly values: readonly number[] };
  /** `[B or 1, HQ or 1, T, Tk]` with strides 0 for shared axes. */
  readonly bias?: { readonly values: Float64Array; readonly batch: number; readonly head: number };
  readonly cuSeqlens?: readonly number[];
  /** Keys and values are then `[slots, keyTime, HKV, ·]`. */
  readonly cache?: { readonly slots: readonly number[]; readonly lengths: readonly number[] };
  readonly q: Float64Array;
  readonly k: Float64Array;
  readonly v: Float64Array;
  /** Cotangents of output, lse and rowMax. */
  readonly dOutput: Float64Array;
  readonly dLse?: Float64Array;
  readonly dRowMax?: Float64Array;
}

/** Outputs and gradients by name. */
export type Results = Readonly<Record<string, Float64Array>>;

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** `n` standard normal numbers that float32 holds exactly. */
export function normals(next: () => number, n: number): Float64Array {
  const one = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  return Float64Array.from({ length: n }, () => Math.fround(one()));
}

type Choices = Partial<Omit<AttentionCase, "sizes" | "bias" | "dLse" | "dRowMax">> &
  Partial<AttentionSizes> & {
    readonly seed?: number;
    readonly bias?: "full" | "heads" | "shared";
    readonly statistics?: boolean;
    readonly slotCount?: number;
  };

/** A job with normal inputs and cotangents. */
export function randomCase(choices: Choices): AttentionCase {
  const { batch = 1, time = 8, queryHeads = 2, keyWidth = 4, valueWidth = 4, causal = true } = choices;
  const { keyTime = time, keyHeads = queryHeads, seed = 1 } = choices;
  const sizes = { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth };
  const next = uniform(seed);
  const rows = choices.slotCount ?? batch;
  const base: AttentionCase = {
    ...{ sizes, causal, scale: choices.scale ?? keyWidth ** -0.5 },
    q: choices.q ?? normals(next, batch * time * queryHeads * keyWidth),
    k: choices.k ?? normals(next, rows * keyTime * keyHeads * keyWidth),
    v: choices.v ?? normals(next, rows * keyTime * keyHeads * valueWidth),
    dOutput: choices.dOutput ?? normals(next, batch * time * queryHeads * valueWidth),
    ...(choices.offset === undefined ? {} : { offset: choices.offset }),
    ...(choices.window === undefined ? {} : { window: choices.window }),
    ...(choices.keyMask === undefined ? {} : { keyMask: choices.keyMask }),
    ...(choices.cuSeqlens === undefined ? {} : { cuSeqlens: choices.cuSeqlens }),
    ...(choices.cache === undefined ? {} : { cache: choices.cache }),
  };
  const square = time * keyTime;
  const biases = {
    full: { count: batch * queryHeads * square, batch: queryHeads * square, head: square },
    heads: { count: queryHeads * square, batch: 0, head: square },
    shared: { count: square, batch: 0, head: 0 },
  };
  const kind = choices.bias === undefined ? undefined : biases[choices.bias];
  const statistics = batch * time * queryHeads;
  return {
    ...base,
    ...(kind === undefined ? {} : { bias: { ...kind, values: normals(next, kind.count) } }),
    ...(choices.statistics ? { dLse: normals(next, statistics), dRowMax: normals(next, statistics) } : {}),
  };
}

/** Operands on a device, with NaN guards around them and, where asked for, gaps between heads and tokens. */
export class Placement {
  readonly device: Device;
  readonly dtype: DType;
  readonly gap: number;
  readonly #slices: Slice[] = [];

  constructor(device: Device, gap: number) {
    this.device = device;
    this.dtype = device.defaultDtype;
    this.gap = gap;
  }

  /** `[rows, heads, width]` in `batches`; undefined values leave NaN. */
  rows(shape: readonly [number, number, number, number], values?: Float64Array): HeadRows {
    const [batches, tokens, heads, width] = shape;
    const head = width + this.gap;
    const token = heads * head + this.gap;
    const array = allocateArray(this.dtype, batches * tokens * token + 10).fill(Number.NaN);
    for (let r = 0; values !== undefined && r < batches * tokens * heads; r++) {
      const at = 5 + Math.floor(r / heads) * token + (r % heads) * head;
      array.set(values.subarray(r * width, (r + 1) * width), at);
    }
    return { slice: this.#place(this.dtype, array, 5), batch: tokens * token, token, head };
  }

  /** A run of numbers; undefined values leave NaN. */
  flat(dtype: DType, length: number, values?: ArrayLike<number>): Slice {
    const array = allocateArray(dtype, length + 10).fill(Number.NaN);
    if (values !== undefined) array.set(values, 5);
    return this.#place(dtype, array, 5);
  }

  #place(dtype: DType, array: ReturnType<typeof allocateArray>, offset: number): Slice {
    const storage = this.device.allocatePersistent(dtype, array.length);
    this.device.write({ storage, offset: 0 }, array);
    const slice = { storage, offset };
    this.#slices.push(slice);
    return slice;
  }

  /** The values of an operand; fails where a gap or a guard was written. */
  readRows(rows: HeadRows, shape: readonly [number, number, number, number]): Float64Array {
    const [batches, tokens, heads, width] = shape;
    const { storage } = rows.slice;
    const all = Float64Array.from(this.device.readSync({ storage, offset: 0 }, storage.length));
    const values = new Float64Array(batches * tokens * heads * width);
    for (let r = 0; r < batches * tokens * heads; r++) {
      const at = 5 + Math.floor(r / heads) * rows.token + (r % heads) * rows.head;
      values.set(all.subarray(at, at + width), r * width);
      all.fill(Number.NaN, at, at + width);
    }
    assert.ok(all.every(Number.isNaN), "nothing is written beside the rows");
    return values;
  }

  readFlat(slice: Slice): Float64Array {
    const all = Float64Array.from(
      this.device.readSync({ storage: slice.storage, offset: 0 }, slice.storage.length),
    );
    const guards = [...all.subarray(0, 5), ...all.subarray(-5)];
    assert.ok(guards.every(Number.isNaN), "nothing is written beside the values");
    return all.slice(5, -5);
  }

  release(): void {
    for (const { storage } of this.#slices) this.device.release(storage);
  }
}

/** The problem of a case with its optional operands on the device. */
export function placeProblem(place: Placement, of: AttentionCase): AttentionProblem {
  const { sizes, scale, causal, offset, window, keyMask, bias, cuSeqlens, cache } = of;
  const ints = (values: readonly number[]): Slice => place.flat("int32", values.length, values);
  return {
    ...{ sizes, scale, causal, offset, window },
    keyMask: keyMask && place.flat(keyMask.dtype, keyMask.values.length, keyMask.values),
    bias: bias && {
      slice: place.flat(place.dtype, bias.values.length, bias.values),
      ...{ batch: bias.batch, head: bias.head, row: sizes.keyTime },
    },
    packed: cuSeqlens && { cuSeqlens: ints(cuSeqlens), count: cuSeqlens.length - 1 },
    cache: cache && { slots: ints(cache.slots), lengths: ints(cache.lengths) },
  };
}

/** How a case is run. */
export interface RunOptions {
  /** Elements between heads and between tokens. */
  readonly gap?: number;
  /** Threads that the backward is cut for: 1 takes one pass, many take two. */
  readonly threads?: number;
  readonly backward?: boolean;
}

/** Runs forward and, unless told otherwise, backward. */
export function runCase(device: Device, of: AttentionCase, options: RunOptions = {}): Results {
  const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = of.sizes;
  const place = new Placement(device, options.gap ?? 0);
  const problem = placeProblem(place, of);
  const rows = of.cache === undefined ? batch : of.k.length / (keyTime * keyHeads * keyWidth);
  const shapes = {
    q: [batch, time, queryHeads, keyWidth],
    k: [rows, keyTime, keyHeads, keyWidth],
    v: [rows, keyTime, keyHeads, valueWidth],
    output: [batch, time, queryHeads, valueWidth],
  } as const;
  const statistic = (values?: Float64Array) => place.flat(place.dtype, batch * time * queryHeads, values);
  const forward = {
    ...{ q: place.rows(shapes.q, of.q), k: place.rows(shapes.k, of.k), v: place.rows(shapes.v, of.v) },
    ...{ output: place.rows(shapes.output), lse: statistic(), rowMax: statistic() },
  };
  device.run(attentionForward(problem, forward));
  const results: Record<string, Float64Array> = {
    output: place.readRows(forward.output, shapes.output),
    lse: place.readFlat(forward.lse),
    rowMax: place.readFlat(forward.rowMax),
  };
  if (options.backward ?? of.cache === undefined) {
    const gradients = { dQ: place.rows(shapes.q), dK: place.rows(shapes.k), dV: place.rows(shapes.v) };
    const backward = {
      ...forward,
      ...gradients,
      dOutput: place.rows(shapes.output, of.dOutput),
      dLse: of.dLse && statistic(of.dLse),
      dRowMax: of.dRowMax && statistic(of.dRowMax),
      delta: statistic(),
    };
    for (const dispatch of attentionBackward(problem, backward, options.threads ?? 1)) device.run(dispatch);
    results["q"] = place.readRows(gradients.dQ, shapes.q);
    results["k"] = place.readRows(gradients.dK, shapes.k);
    results["v"] = place.readRows(gradients.dV, shapes.v);
    if (of.bias !== undefined) {
      const dBias = place.flat(place.dtype, of.bias.values.length);
      device.run(attentionBiasBackward(problem, { ...backward, dBias }));
      results["bias"] = place.readFlat(dBias);
    }
  }
  place.release();
  return results;
}

/** Σ (output · cotangent) over everything that has one. */
export function lossOf(of: AttentionCase, results: Results): number {
  let loss = 0;
  const add = (values: Float64Array, cotangents: Float64Array | undefined): void => {
    for (let i = 0; cotangents !== undefined && i < values.length; i++) {
      if (cotangents[i] !== 0 && Number.isFinite(values[i]!)) loss += values[i]! * cotangents[i]!;
    }
  };
  add(results["output"]!, of.dOutput);
  add(results["lse"]!, of.dLse);
  add(results["rowMax"]!, of.dRowMax);
  return loss;
}

/** ‖actual − expected‖ / ‖expected‖; the plain norm where the expected is zero; NaN where anything is. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  assert.equal(actual.length, expected.length);
  let error = 0;
  let norm = 0;
  for (let i = 0; i < expected.length; i++) {
    if (actual[i] === expected[i]) norm += Number.isFinite(expected[i]!) ? expected[i]! ** 2 : 0;
    else {
      error += (actual[i]! - expected[i]!) ** 2;
      norm += expected[i]! ** 2;
    }
  }
  return Math.sqrt(norm === 0 ? error : error / norm);
}

/** Fails unless every named result is within the bound of the expected one. */
export function assertClose(actual: Results, expected: Results, bound: number, what = ""): void {
  for (const [name, values] of Object.entries(expected)) {
    const error = relativeError(actual[name]!, values);
    assert.ok(error <= bound, `${what} ${name}: expected a relative error <= ${bound}, got ${error}`);
  }
}
