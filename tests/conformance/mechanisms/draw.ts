/** Inputs of mechanisms drawn by the rules that they declare: float32 numbers, the same on every device. */
import type { Mechanism, Values } from "../../../src/mechanisms/mechanism.ts";
import { Random } from "../../../src/tensor/random.ts";

/** Inputs by symbol. */
export type Inputs = Readonly<Record<string, Values>>;

/** Sizes by axis name; axes of its own have the lengths that a mechanism gives them. */
export type Sizes = Readonly<Record<string, number>>;

/** Value heads in groups, widths that fill no vector. */
export const usual: Sizes = {
  ...{ B: 2, T: 37, H: 2, HV: 4, HQ: 4, HKV: 2, K: 10, V: 7, past: 5 },
};

/** The length of an axis of a mechanism. */
export function lengthOf(mechanism: Mechanism, sizes: Sizes, axis: string): number {
  if (/^\d+$/.test(axis)) return Number(axis);
  const features = mechanism.featureWidth?.(sizes["K"]!) ?? sizes["K"]!;
  const length = { F: features, ...sizes, ...mechanism.ownAxes?.(sizes) }[axis];
  if (length === undefined) throw new Error(`${mechanism.id} says no length for its axis ${axis}`);
  return length;
}

/** What may be said of a draw. */
export interface DrawOptions {
  /** Whether a state is carried in; true unless given. */
  readonly carried?: boolean;
  readonly seed?: number;
  /** Queries may be fewer or more than keys. */
  readonly queryTime?: number;
  /** Sequences in place of batch rows of the carried state. */
  readonly sequences?: number;
}

/** True for an input that carries a state in. */
export function isCarried(mechanism: Mechanism, name: string): boolean {
  return Object.values(mechanism.state).some((part) => part.input === name);
}

/** True for an input that has the queries' length; where keys are the queries themselves there is only one length. */
function isOfQueries({ inputs }: Mechanism, name: string): boolean {
  const hasKeys = Object.keys(inputs).some(
    (other) => other !== "q" && other !== "v" && inputs[other]!.axes.startsWith("B T"),
  );
  return hasKeys && (name === "q" || inputs[name]!.ofQueries === true);
}

/** True for an input whose second axis is time. */
export function hasTime(mechanism: Mechanism, name: string): boolean {
  return mechanism.inputs[name]!.axes.startsWith("B T");
}

/** Admissible inputs of the given sizes. */
export function draw(mechanism: Mechanism, sizes: Sizes = usual, options: DrawOptions = {}): Inputs {
  const { carried = true, seed = 7, queryTime, sequences } = options;
  const inputs: Record<string, Values> = {};
  for (const [name, rule] of Object.entries(mechanism.inputs)) {
    const isState = isCarried(mechanism, name);
    if (isState && !carried) continue;
    const shape = rule.axes.split(" ").map((axis) => lengthOf(mechanism, sizes, axis));
    if (isOfQueries(mechanism, name) && queryTime !== undefined) shape[1] = queryTime;
    if (isState && sequences !== undefined) shape[0] = sequences;
    const size = shape.reduce((product, length) => product * length, 1);
    const normal = new Random(seed, `${mechanism.id} ${name}`).normal(new Float64Array(size));
    const values = { shape, data: normal.map((number) => Math.fround(rule.sample(number))) };
    inputs[name] =
      mechanism.traits.unitKeys && (name === "k" || name === "q") ? ofUnitLength(values) : values;
  }
  return inputs;
}

function ofUnitLength({ data, shape }: Values): Values {
  const width = shape.at(-1)!;
  const unit = Float64Array.from(data);
  for (let at = 0; at < unit.length; at += width) {
    const row = unit.subarray(at, at + width);
    const length = Math.hypot(...row);
    for (let i = 0; i < width; i++) row[i] = Math.fround(row[i]! / length);
  }
  return { data: unit, shape };
}

/** Standard normal float32 numbers of a shape. */
export function normal(stream: string, shape: readonly number[]): Values {
  const size = shape.reduce((product, length) => product * length, 1);
  return { shape, data: Float64Array.from(new Random(13, stream).normal(new Float32Array(size))) };
}

/** Positions [from, to) of an axis. */
export function cut({ data, shape }: Values, axis: number, from: number, to: number): Values {
  const inner = shape.slice(axis + 1).reduce((product, length) => product * length, 1);
  const outer = shape.slice(0, axis).reduce((product, length) => product * length, 1);
  const result = new Float64Array(outer * (to - from) * inner);
  for (let i = 0; i < outer; i++) {
    const begin = (i * shape[axis]! + from) * inner;
    result.set(data.subarray(begin, begin + (to - from) * inner), i * (to - from) * inner);
  }
  return { data: result, shape: shape.map((length, i) => (i === axis ? to - from : length)) };
}

/** The same positions of every input that has a time axis. */
export function cutTime(mechanism: Mechanism, inputs: Inputs, from: number, to: number): Inputs {
  return mapInputs(inputs, (values, name) => (hasTime(mechanism, name) ? cut(values, 1, from, to) : values));
}

/** Every input through a function. */
export function mapInputs(inputs: Inputs, fn: (values: Values, name: string) => Values): Inputs {
  return Object.fromEntries(Object.entries(inputs).map(([name, values]) => [name, fn(values, name)]));
}

/** Every number through a function, rounded to float32. */
export function mapValues({ data, shape }: Values, fn: (value: number, at: number) => number): Values {
  return { shape, data: data.map((value, at) => Math.fround(fn(value, at))) };
}
