/** Jobs of the delta family on any device: random ones, ones read from golden files, and how they are run. */
import { readFileSync } from "node:fs";
import type { Device, Slice } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { DeltaForm, DeltaJob, DeltaOrder } from "../../src/mechanisms/recurrence/delta.ts";
import { deltaBackward, deltaForward, deltaPlan, deltaStep } from "../../src/mechanisms/recurrence/delta.ts";
import type { Decay, Packed, Rows, Sizes } from "../../src/mechanisms/recurrence/problem.ts";
import type { DType, TypedArray } from "../../src/tensor/dtype.ts";
import { allocateArray } from "../../src/tensor/dtype.ts";

/** Inputs by name, float64, every axis contiguous. */
export interface DeltaCase {
  readonly sizes: Sizes;
  readonly decay: Decay;
  readonly scale: number;
  readonly inputs: Readonly<Record<string, Float64Array>>;
  readonly cuSeqlens?: readonly number[];
}

export type Values = Readonly<Record<string, Float64Array>>;

/** How a case is run. */
export interface RunOptions {
  readonly chunk?: number;
  readonly order?: DeltaOrder | undefined;
  /** Floats between the end of a row and the next one. */
  readonly gap?: number;
  /** Whether a write key of its own is passed. */
  readonly keep?: boolean;
}

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

function normal(next: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
}

export interface CaseOptions extends Partial<Sizes> {
  readonly decay?: Decay;
  readonly seed?: number;
  /** Decays are uniform between this and 0. */
  readonly strongest?: number;
  readonly cuSeqlens?: readonly number[];
  readonly initial?: boolean;
  readonly twoKeys?: boolean;
}

/** Unit keys and queries, beta in (0, 1), float32 values. */
export function randomCase(options: CaseOptions): DeltaCase {
  const { batch = 1, time = 8, heads = 2, keyWidth = 4, valueWidth = 4, decay = "scalar" } = options;
  const valueHeads = options.valueHeads ?? heads;
  const sizes = { batch, time, heads, valueHeads, keyWidth, valueWidth };
  const next = uniform(options.seed ?? 1);
  const fill = (n: number, value: () => number) =>
    Float64Array.from({ length: n }, () => Math.fround(value()));
  const unit = (): Float64Array => {
    const rows = fill(batch * time * heads * keyWidth, () => normal(next));
    for (let at = 0; at < rows.length; at += keyWidth) {
      const row = rows.subarray(at, at + keyWidth);
      const length = Math.hypot(...row);
      for (let c = 0; c < keyWidth; c++) row[c] = Math.fround(row[c]! / length);
    }
    return rows;
  };
  const gates = {
    none: 0,
    head: valueHeads,
    scalar: batch * time * valueHeads,
    key: batch * time * valueHeads * keyWidth,
  };
  const inputs: Record<string, Float64Array> = {
    q: unit(),
    k: unit(),
    v: fill(batch * time * valueHeads * valueWidth, () => normal(next)),
    beta: fill(batch * time * valueHeads, next),
  };
  if (options.twoKeys) inputs["writeKey"] = unit();
  if (decay !== "none") inputs["g"] = fill(gates[decay], () => (options.strongest ?? -0.5) * next());
  const states = (options.cuSeqlens === undefined ? batch : options.cuSeqlens.length - 1) * valueHeads;
  if (options.initial ?? true)
    inputs["initialState"] = fill(states * keyWidth * valueWidth, () => normal(next));
  const packed = options.cuSeqlens === undefined ? {} : { cuSeqlens: options.cuSeqlens };
  return { sizes, decay, scale: keyWidth ** -0.5, inputs, ...packed };
}

/** Number of states of a case. */
export function stateCount({ sizes, cuSeqlens }: DeltaCase): number {
  return (cuSeqlens === undefined ? sizes.batch : cuSeqlens.length - 1) * sizes.valueHeads;
}

/** Random cotangents of the output and the final state. */
export function cotangents(of: DeltaCase, seed = 99): Values {
  const next = uniform(seed);
  const { batch, time, valueHeads, keyWidth, valueWidth } = of.sizes;
  const fill = (n: number) => Float64Array.from({ length: n }, () => Math.fround(normal(next)));
  return {
    output: fill(batch * time * valueHeads * valueWidth),
    finalState: fill(stateCount(of) * keyWidth * valueWidth),
  };
}

/** Rows of a case laid out on a device, with guards around and gaps between them. */
class Placement {
  readonly device: Device;
  readonly dtype: DType;
  readonly gap: number;

  constructor(device: Device, gap: number) {
    this.device = device;
    this.dtype = device.defaultDtype;
    this.gap = gap;
  }

  /** An operand of `rows` rows: `values` undefined leaves NaN everywhere. */
  rows(rows: number, width: number, values?: Float64Array): Rows {
    const stride = width + this.gap;
    const array = allocateArray(this.dtype, rows * stride + 8).fill(Number.NaN);
    for (let r = 0; values !== undefined && r < rows; r++)
      array.set(values.subarray(r * width, (r + 1) * width), 4 + r * stride);
    return { slice: this.#place(array, 4), stride };
  }

  flat(length: number, values?: ArrayLike<number>): Slice {
    const array = allocateArray(this.dtype, length + 8).fill(Number.NaN);
    if (values !== undefined) array.set(values, 4);
    return this.#place(array, 4);
  }

  ints(values: readonly number[]): Slice {
    return this.#place(Int32Array.from(values), 0);
  }

  #place(array: TypedArray, offset: number): Slice {
    const dtype = array instanceof Int32Array ? "int32" : this.dtype;
    const storage = this.device.allocatePersistent(dtype, array.length);
    this.device.write({ storage, offset: 0 }, array);
    return { storage, offset };
  }

  /** Values of an operand; throws where a guard or a gap was written. */
  read(from: Rows, rows: number, width: number): Float64Array {
    const { storage } = from.slice;
    const all = this.device.readSync({ storage, offset: 0 }, storage.length);
    const result = new Float64Array(rows * width);
    for (let i = 0; i < all.length; i++) {
      const row = Math.floor((i - 4) / from.stride);
      const column = (i - 4) % from.stride;
      const inside = i >= 4 && row < rows && column < width;
      if (inside) result[row * width + column] = all[i]!;
      else if (!Number.isNaN(all[i])) throw new Error(`element ${i} outside the operand was written`);
    }
    return result;
  }
}

function placeJob(place: Placement, of: DeltaCase, options: RunOptions): DeltaJob {
  const { sizes, inputs } = of;
  const { heads, valueHeads, keyWidth, valueWidth } = sizes;
  const n = sizes.batch * sizes.time;
  const gateWidth = of.decay === "key" ? valueHeads * keyWidth : valueHeads;
  const packed: Packed | undefined =
    of.cuSeqlens === undefined
      ? undefined
      : { cuSeqlens: place.ints(of.cuSeqlens), count: of.cuSeqlens.length - 1 };
  const g = inputs["g"];
  return {
    sizes,
    decay: of.decay,
    scale: of.scale,
    q: place.rows(n, heads * keyWidth, inputs["q"]),
    eraseKey: place.rows(n, heads * keyWidth, inputs["k"]),
    writeKey:
      inputs["writeKey"] === undefined ? undefined : place.rows(n, heads * keyWidth, inputs["writeKey"]),
    v: place.rows(n, valueHeads * valueWidth, inputs["v"]),
    beta: place.rows(n, valueHeads, inputs["beta"]),
    g: g === undefined ? undefined : place.rows(of.decay === "head" ? 1 : n, gateWidth, g),
    initialState:
      inputs["initialState"] === undefined
        ? undefined
        : place.flat(inputs["initialState"].length, inputs["initialState"]),
    packed,
    order: options.order,
    chunk: options.chunk,
  };
}

/** Output and final state of one form, with the states that backward needs where asked. */
export function runForward(
  device: Device,
  form: DeltaForm,
  of: DeltaCase,
  options: RunOptions & { readonly kept?: boolean } = {},
): { output: Float64Array; finalState: Float64Array } {
  const place = new Placement(device, options.gap ?? 0);
  const { batch, time, valueHeads, keyWidth, valueWidth } = of.sizes;
  const job = placeJob(place, of, options);
  const n = batch * time;
  const o = place.rows(n, valueHeads * valueWidth);
  const states = stateCount(of) * keyWidth * valueWidth;
  const finalState = place.flat(states);
  const keptStates = options.kept === true ? place.flat(deltaPlan(job).keptLength) : undefined;
  device.run(deltaForward(device, form, job, { o, finalState, keptStates }));
  return {
    output: place.read(o, n, valueHeads * valueWidth),
    finalState: place.read({ slice: finalState, stride: Math.max(1, states) }, 1, states),
  };
}

/** Token after token by steps on a slab: sequence b lies on slot `slots[b]` of more slots than there are sequences. */
export function runSteps(
  device: Device,
  of: DeltaCase,
  slots: readonly number[],
  options: RunOptions = {},
): { output: Float64Array; finalState: Float64Array } {
  const place = new Placement(device, options.gap ?? 0);
  const { batch, time, valueHeads, keyWidth, valueWidth } = of.sizes;
  const size = valueHeads * keyWidth * valueWidth;
  const count = Math.max(...slots) + 1;
  const slab = new Float64Array(count * size).fill(Number.NaN);
  for (const [b, slot] of slots.entries())
    slab.set(of.inputs["initialState"]!.subarray(b * size, (b + 1) * size), slot * size);
  const states = place.flat(slab.length, slab);
  const width = valueHeads * valueWidth;
  const output = new Float64Array(batch * time * width);
  for (let t = 0; t < time; t++) {
    const o = place.rows(batch, width);
    const job = placeJob(place, tokenOf(of, t), options);
    device.run(deltaStep(job, { slots: place.ints(slots), states }, o));
    const got = place.read(o, batch, width);
    for (let b = 0; b < batch; b++)
      output.set(got.subarray(b * width, (b + 1) * width), (b * time + t) * width);
  }
  const after = place.read({ slice: states, stride: slab.length }, 1, slab.length);
  const finalState = new Float64Array(batch * size);
  for (const [b, slot] of slots.entries())
    finalState.set(after.subarray(slot * size, (slot + 1) * size), b * size);
  return { output, finalState };
}

/** Token t of every batch row as a case of one token. */
function tokenOf(of: DeltaCase, t: number): DeltaCase {
  const { batch, time } = of.sizes;
  const inputs = Object.fromEntries(
    Object.entries(of.inputs)
      .filter(([name]) => name !== "initialState")
      .map(([name, values]) => {
        if (name === "g" && of.decay === "head") return [name, values];
        const width = values.length / (batch * time);
        const one = new Float64Array(batch * width);
        for (let b = 0; b < batch; b++)
          one.set(values.subarray((b * time + t) * width, (b * time + t + 1) * width), b * width);
        return [name, one];
      }),
  );
  return { ...of, sizes: { ...of.sizes, time: 1 }, inputs };
}

/** Gradients of every input by name, the states kept by a forward pass of `form`. */
export function runBackward(
  device: Device,
  of: DeltaCase,
  by: Values,
  options: RunOptions & { readonly form?: DeltaForm } = {},
): Values {
  const place = new Placement(device, options.gap ?? 0);
  const { batch, time, heads, valueHeads, keyWidth, valueWidth } = of.sizes;
  const job = placeJob(place, of, options);
  const n = batch * time;
  const keyRow = heads * keyWidth;
  const valueRow = valueHeads * valueWidth;
  const states = stateCount(of) * keyWidth * valueWidth;
  const keptStates = place.flat(deltaPlan(job).keptLength);
  device.run(
    deltaForward(device, options.form ?? "recurrent", job, { o: place.rows(n, valueRow), keptStates }),
  );
  const gateRow = of.decay === "key" ? valueHeads * keyWidth : valueHeads;
  const dq = place.rows(n, keyRow);
  const dEraseKey = place.rows(n, keyRow);
  const dWriteKey = job.writeKey === undefined ? undefined : place.rows(n, keyRow);
  const dv = place.rows(n, valueRow);
  const dBeta = place.rows(n, valueHeads);
  const dg = of.decay === "none" ? undefined : place.rows(n, gateRow);
  const dInitialState = place.flat(states);
  device.run(
    deltaBackward(job, {
      keptStates,
      dO: place.rows(n, valueRow, by["output"]),
      dFinalState: by["finalState"] === undefined ? undefined : place.flat(states, by["finalState"]),
      ...{ dq, dEraseKey, dWriteKey, dv, dBeta, dg, dInitialState },
    }),
  );
  return {
    q: place.read(dq, n, keyRow),
    k: place.read(dEraseKey, n, keyRow),
    ...(dWriteKey === undefined ? {} : { writeKey: place.read(dWriteKey, n, keyRow) }),
    v: place.read(dv, n, valueRow),
    beta: place.read(dBeta, n, valueHeads),
    ...(dg === undefined ? {} : { g: place.read(dg, n, gateRow) }),
    initialState: place.read({ slice: dInitialState, stride: Math.max(1, states) }, 1, states),
  };
}

const host = hostDevice({ dtype: "float64" });

/** The float64 truth of a case. */
export function truth(of: DeltaCase, options: RunOptions = {}): ReturnType<typeof runForward> {
  return runForward(host, "recurrent", of, options);
}

/** The float64 gradients of a case. */
export function trueGradients(of: DeltaCase, by: Values): Values {
  return runBackward(host, of, by);
}

/** RMS of the difference over RMS of the truth; NaN and a wrong length are infinite. */
export function relativeRms(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (got.length !== expected.length) return Number.POSITIVE_INFINITY;
  let error = 0;
  let norm = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (got[i]! - expected[i]!) ** 2;
    norm += expected[i]! ** 2;
  }
  if (Number.isNaN(error)) return Number.POSITIVE_INFINITY;
  return error === 0 ? 0 : Math.sqrt(error / norm);
}

/** A golden file: its case, results, cotangents and gradients. */
export interface Golden {
  readonly case: DeltaCase;
  readonly output: Float64Array;
  readonly finalState: Float64Array;
  readonly by: Values;
  readonly gradients: Values;
}

interface Header {
  readonly [name: string]: {
    readonly shape: readonly number[];
    readonly data_offsets: readonly [number, number];
  };
}

/** Reads one file of golden values of the delta family. */
export function readGolden(path: string): Golden {
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  const { __metadata__: metadata, ...header } = JSON.parse(
    bytes.toString("utf8", 8, 8 + length),
  ) as Header & {
    readonly __metadata__: Readonly<Record<string, string>>;
  };
  const values = (name: string): Float64Array => {
    const [from, to] = header[name]!.data_offsets;
    return new Float64Array(
      bytes.buffer.slice(bytes.byteOffset + 8 + length + from, bytes.byteOffset + 8 + length + to),
    );
  };
  const golden = JSON.parse((metadata as unknown as Record<string, string>)["golden"]!) as {
    readonly op: string;
    readonly scale: string | number;
  };
  const [batch, time, heads, keyWidth] = header["in.q"]!.shape as [number, number, number, number];
  const [, , valueHeads, valueWidth] = header["in.v"]!.shape as [number, number, number, number];
  const named = (prefix: string) =>
    Object.fromEntries(
      Object.keys(header)
        .filter((name) => name.startsWith(prefix))
        .map((name) => [name.slice(prefix.length), values(name)]),
    );
  const gate = header["in.g"]?.shape.length;
  return {
    case: {
      sizes: { batch, time, heads, valueHeads, keyWidth, valueWidth },
      decay: gate === undefined ? "none" : gate === 3 ? "scalar" : "key",
      scale: golden.scale === "K^-0.5" ? keyWidth ** -0.5 : Number(golden.scale),
      inputs: named("in."),
    },
    output: values("out.output"),
    finalState: values("out.finalState"),
    by: named("ct."),
    gradients: named("grad."),
  };
}
