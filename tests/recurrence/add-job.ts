/** Jobs of the additive recurrence on any device: operands between NaN guards, results as plain arrays. */
import type { Device, Slice } from "../../src/device/device.ts";
import type { AddForm, AddRule } from "../../src/mechanisms/recurrence/add.ts";
import { addForward, addStep } from "../../src/mechanisms/recurrence/add.ts";
import { addBackward } from "../../src/mechanisms/recurrence/add-backward.ts";
import { addFullBackward, addFullForward } from "../../src/mechanisms/recurrence/add-full.ts";
import type { Rows, Sizes } from "../../src/mechanisms/recurrence/problem.ts";
import type { TypedArray } from "../../src/tensor/dtype.ts";

/** Arrays by the names of the house. */
export type Arrays = Record<string, Float64Array>;

/** One job: its rule, its axes and its inputs `q k v g initialState initialNormalizer`. */
export interface Job extends Sizes {
  readonly rule: AddRule;
  readonly inputs: Arrays;
  /** The queries' own length where the form is not causal. */
  readonly queryTime?: number;
  readonly cuSeqlens?: readonly number[];
  readonly cuQueries?: readonly number[];
  readonly chunk?: number;
  /** Elements between the rows of operands; rows lie without gaps where it is 0. */
  readonly gap?: number;
}

/** Uniform numbers from −1 to 1, the same for the same seed. */
export function uniform(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

/** Widths of rows by symbol. */
function widths(job: Job): Record<string, number> {
  const { heads, valueHeads, keyWidth, valueWidth } = job;
  const g = { none: 0, head: 0, scalar: valueHeads, key: valueHeads * keyWidth }[job.rule.decay];
  return { q: heads * keyWidth, k: heads * keyWidth, v: valueHeads * valueWidth, g };
}

/** How many carried states a job has. */
export function sequencesOf(job: Job): number {
  return job.cuSeqlens === undefined ? job.batch : job.cuSeqlens.length - 1;
}

type Given = Pick<Sizes, "time" | "keyWidth" | "valueWidth"> & { rule: AddRule } & Partial<
    Omit<Job, "inputs">
  >;

/** A job with random inputs: positive q and k where a normaliser divides by their products, gates down to −strength. */
export function randomJob(given: Given, { seed = 1, strength = 0.5, state = true } = {}): Job {
  const job = { batch: 1, heads: 1, valueHeads: given.heads ?? 1, ...given, inputs: {} as Arrays };
  const next = uniform(seed);
  const draw = (length: number, map = (x: number) => x) =>
    Float64Array.from({ length }, () => Math.fround(map(next())));
  const feature = job.rule.normalize ? (x: number) => Math.abs(x) + 0.05 : undefined;
  const { q, k, v, g } = widths(job);
  const rows = job.batch * job.time;
  job.inputs.q = draw(job.batch * (job.queryTime ?? job.time) * q, feature);
  job.inputs.k = draw(rows * k, feature);
  job.inputs.v = draw(rows * v);
  const gates = job.rule.decay === "head" ? job.valueHeads : rows * g;
  if (job.rule.decay !== "none") job.inputs.g = draw(gates, (x) => -strength * Math.abs(x));
  const channels = sequencesOf(job) * job.valueHeads * job.keyWidth;
  if (state) job.inputs.initialState = draw(channels * job.valueWidth);
  if (state && job.rule.normalize) job.inputs.initialNormalizer = draw(channels, feature);
  return job;
}

/** Random cotangents of everything that comes out. */
export function randomCotangents(job: Job, seed = 2): Arrays {
  const next = uniform(seed);
  const draw = (length: number) => Float64Array.from({ length }, () => Math.fround(next()));
  const channels = sequencesOf(job) * job.valueHeads * job.keyWidth;
  const rows = job.batch * (job.queryTime ?? job.time);
  const output = draw(rows * widths(job).v!);
  const finalState = draw(channels * job.valueWidth);
  return job.rule.normalize
    ? { output, finalState, finalNormalizer: draw(channels) }
    : { output, finalState };
}

/** Memory of one device for one job: operands with guards around and, with a gap, between their rows. */
class Memory {
  readonly device: Device;
  readonly gap: number;

  constructor(device: Device, gap: number) {
    this.device = device;
    this.gap = gap;
  }

  #array(length: number): TypedArray {
    return this.device.defaultDtype === "float64" ? new Float64Array(length) : new Float32Array(length);
  }

  /** NaN everywhere but where values are given. */
  #place(rows: number, width: number, stride: number, values: ArrayLike<number> | undefined): Slice {
    const offset = 3;
    const array = this.#array(offset + rows * stride + 5).fill(Number.NaN);
    for (let i = 0; values !== undefined && i < rows * width; i++)
      array[offset + Math.floor(i / width) * stride + (i % width)] = values[i];
    const storage = this.device.allocate(this.device.defaultDtype, array.length);
    this.device.write({ storage, offset: 0 }, array);
    return { storage, offset };
  }

  input(rows: number, width: number, values: ArrayLike<number>): Rows {
    const stride = width + this.gap;
    return { slice: this.#place(rows, width, stride, values), stride };
  }

  /** A result, with what reads it. A kernel that wrote outside of it is an error. */
  output(rows: number, width: number, gap = this.gap): { rows: Rows; read: () => Float64Array } {
    const stride = width + gap;
    const slice = this.#place(rows, width, stride, undefined);
    const read = (): Float64Array => {
      const all = this.device.readSync({ storage: slice.storage, offset: 0 }, slice.storage.length);
      const values = new Float64Array(rows * width);
      let guards = all.length - values.length;
      for (let i = 0; i < values.length; i++)
        values[i] = all[slice.offset + Math.floor(i / width) * stride + (i % width)];
      for (let i = 0; i < all.length; i++) {
        const at = i - slice.offset;
        const inside = at >= 0 && at < rows * stride && at % stride < width;
        if (!inside && Number.isNaN(all[i])) guards--;
      }
      if (guards !== 0) throw new Error(`${guards} numbers were written outside of a result`);
      return values;
    };
    return { rows: { slice, stride }, read };
  }

  integers(values: readonly number[]): Slice {
    const storage = this.device.allocate("int32", values.length);
    this.device.write({ storage, offset: 0 }, Int32Array.from(values));
    return { storage, offset: 0 };
  }
}

function operandsOf(memory: Memory, job: Job) {
  const { q, k, v, g } = widths(job);
  const { inputs, batch, time } = job;
  const rows = batch * time;
  const whole = (values: Float64Array | undefined) =>
    values === undefined ? undefined : { ...memory.input(1, values.length, values) }.slice;
  const gates =
    inputs.g === undefined
      ? undefined
      : job.rule.decay === "head"
        ? memory.input(1, inputs.g.length, inputs.g)
        : memory.input(rows, g!, inputs.g);
  return {
    q: memory.input(batch * (job.queryTime ?? time), q!, inputs.q!),
    k: memory.input(rows, k!, inputs.k!),
    v: memory.input(rows, v!, inputs.v!),
    g: gates,
    initialState: whole(inputs.initialState),
    initialNormalizer: whole(inputs.initialNormalizer),
  };
}

function packedOf(memory: Memory, job: Job) {
  const entry = (values: readonly number[]) => ({
    cuSeqlens: memory.integers(values),
    count: values.length - 1,
  });
  if (job.cuSeqlens === undefined) return { packed: undefined, full: undefined };
  const keys = entry(job.cuSeqlens);
  return { packed: keys, full: { keys, queries: entry(job.cuQueries ?? job.cuSeqlens) } };
}

/** Runs one form forward: `output`, `finalState` and, with a normaliser, `finalNormalizer`. */
export function forward(device: Device, form: AddForm | "full", job: Job): Arrays {
  const scope = device.enter();
  const memory = new Memory(device, job.gap ?? 0);
  const channels = sequencesOf(job) * job.valueHeads * job.keyWidth;
  const output = memory.output(job.batch * (job.queryTime ?? job.time), widths(job).v!);
  const state = memory.output(1, channels * job.valueWidth, 0);
  const normalizer = job.rule.normalize ? memory.output(1, channels, 0) : undefined;
  const { packed, full } = packedOf(memory, job);
  const operands = operandsOf(memory, job);
  const results = {
    o: output.rows,
    finalState: state.rows.slice,
    finalNormalizer: normalizer?.rows.slice,
  };
  if (form === "full") {
    addFullForward(
      device,
      job.rule,
      { ...job, queryTime: job.queryTime ?? job.time },
      operands,
      results,
      full,
    );
  } else addForward(device, form, job.rule, job, operands, results, { packed, chunk: job.chunk });
  const got: Arrays = { output: output.read(), finalState: state.read() };
  if (normalizer !== undefined) got.finalNormalizer = normalizer.read();
  scope.exit([]);
  return got;
}

/** Gradients by the names of the inputs, of the causal forms or of the one that is not. */
export function backward(device: Device, job: Job, cotangents: Arrays, full = false): Arrays {
  const scope = device.enter();
  const memory = new Memory(device, job.gap ?? 0);
  const { q, k, v, g } = widths(job);
  const { inputs, batch, time } = job;
  const length = (name: string) => inputs[name]!.length;
  const targets = {
    q: memory.output(batch * (job.queryTime ?? time), q!),
    k: memory.output(batch * time, k!),
    v: memory.output(batch * time, v!),
    ...(inputs.g && {
      g: job.rule.decay === "head" ? memory.output(1, length("g"), 0) : memory.output(batch * time, g!),
    }),
    ...(inputs.initialState && { initialState: memory.output(1, length("initialState"), 0) }),
    ...(inputs.initialNormalizer && { initialNormalizer: memory.output(1, length("initialNormalizer"), 0) }),
  };
  const whole = (values: Float64Array | undefined) =>
    values === undefined ? undefined : memory.input(1, values.length, values).slice;
  const given = {
    dOutput: memory.input(batch * (job.queryTime ?? time), v!, cotangents.output!),
    dFinalState: whole(cotangents.finalState),
    dFinalNormalizer: whole(cotangents.finalNormalizer),
  };
  const gradients = {
    dq: targets.q.rows,
    dk: targets.k.rows,
    dv: targets.v.rows,
    dg: targets.g?.rows,
    dInitialState: targets.initialState?.rows.slice,
    dInitialNormalizer: targets.initialNormalizer?.rows.slice,
  };
  const packed = packedOf(memory, job);
  const operands = operandsOf(memory, job);
  if (full) {
    const sizes = { ...job, queryTime: job.queryTime ?? time };
    addFullBackward(device, job.rule, sizes, operands, given, gradients, packed.full);
  } else {
    const options = { packed: packed.packed, chunk: job.chunk };
    addBackward(device, job.rule, job, operands, given, gradients, options);
  }
  const got = Object.fromEntries(Object.entries(targets).map(([name, target]) => [name, target.read()]));
  scope.exit([]);
  return got;
}

/** Walks a batch token by token on a slab of `slots` states; row b of the batch sits on slot `slotOf(b)`. */
export function steps(device: Device, job: Job, slots: number, slotOf: (row: number) => number): Arrays {
  const scope = device.enter();
  const memory = new Memory(device, job.gap ?? 0);
  const { batch, time, valueHeads, keyWidth, valueWidth, rule } = job;
  const w = widths(job);
  const perSlot = valueHeads * keyWidth;
  const slab = (values: Float64Array | undefined, width: number): Float64Array => {
    const array = new Float64Array(slots * width);
    for (let b = 0; b < batch && values !== undefined; b++)
      array.set(values.subarray(b * width, (b + 1) * width), slotOf(b) * width);
    return array;
  };
  const states = memory.output(1, slots * perSlot * valueWidth, 0);
  const normalizers = memory.output(1, slots * perSlot, 0);
  const fill = (target: Rows, values: Float64Array) =>
    device.write(target.slice, device.defaultDtype === "float64" ? values : Float32Array.from(values));
  fill(states.rows, slab(job.inputs.initialState, perSlot * valueWidth));
  fill(normalizers.rows, slab(job.inputs.initialNormalizer, perSlot));
  const places = memory.integers(Array.from({ length: batch }, (_, b) => slotOf(b)));
  const output = new Float64Array(batch * time * w.v!);
  for (let t = 0; t < time; t++) {
    const token = (name: string) => {
      const width = w[name]!;
      const at = (b: number) => (b * time + t) * width;
      const rows = Array.from({ length: batch }, (_, b) => job.inputs[name]!.subarray(at(b), at(b) + width));
      return memory.input(
        batch,
        width,
        rows.flatMap((row) => [...row]),
      );
    };
    const gates = job.inputs.g;
    const g =
      gates === undefined
        ? undefined
        : rule.decay === "head"
          ? memory.input(1, gates.length, gates)
          : token("g");
    const o = memory.output(batch, w.v!);
    const slab = { slots: places, states: states.rows.slice, normalizers: normalizers.rows.slice };
    addStep(device, rule, job, { q: token("q"), k: token("k"), v: token("v"), g }, slab, o.rows);
    const values = o.read();
    for (let b = 0; b < batch; b++)
      output.set(values.subarray(b * w.v!, (b + 1) * w.v!), (b * time + t) * w.v!);
  }
  const take = (values: Float64Array, width: number) =>
    Float64Array.from(
      { length: batch * width },
      (_, i) => values[slotOf(Math.floor(i / width)) * width + (i % width)],
    );
  const got: Arrays = { output, finalState: take(states.read(), perSlot * valueWidth) };
  if (rule.normalize) got.finalNormalizer = take(normalizers.read(), perSlot);
  scope.exit([]);
  return got;
}
