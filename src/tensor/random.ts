import { NumericsError, ShapeError } from "../errors.ts";
import { normalCdf, normalQuantile } from "./normal-distribution.ts";
import { orthonormalize } from "./orthogonal.ts";
import { type PhiloxKey, philoxKey, randomBits, type Stream } from "./philox.ts";

type Floats = Float32Array | Float64Array;

/** All that a generator is: plain data that JSON keeps. */
export interface RandomState {
  readonly seed: number;
  readonly stream: Stream;
  /** Blocks of four 32-bit words drawn so far. */
  readonly position: number;
}

const chunk = 512; // numbers made at a time, two to a block

/**
 * A random generator whose numbers depend on seed, stream and position alone, bit for bit on every engine and machine.
 *
 * Philox4x32-10 underneath. Every number costs 64 bits, whatever its distribution, and every call starts at a fresh
 * block. Float32 arrays get the rounded numbers that float64 arrays get.
 *
 * @example
 * const random = new Random(42, "layers.0.q.weight");
 * const weight = random.normal(new Float32Array(64 * 64), 0, 0.02);
 * const again = Random.from({ seed: 42, stream: "layers.0.q.weight", position: 0 });
 * console.log(weight[0] === again.normal(new Float32Array(1), 0, 0.02)[0]); // true
 */
export class Random {
  readonly seed: number;
  readonly stream: Stream;
  readonly #key: PhiloxKey;
  #position: number;

  /** Seed, numeric stream and position are whole numbers from 0 to 2^53 - 1; NumericsError where they are not. */
  constructor(seed: number, stream: Stream = 0, position = 0) {
    this.seed = seed;
    this.stream = stream;
    this.#key = philoxKey(seed, stream);
    if (!Number.isSafeInteger(position) || position < 0) refuse("position", "a whole number >= 0", position);
    this.#position = position;
  }

  /** The generator that goes on where the state was taken. */
  static from(state: RandomState): Random {
    return new Random(state.seed, state.stream, state.position);
  }

  get state(): RandomState {
    return { seed: this.seed, stream: this.stream, position: this.#position };
  }

  /** Another stream of the same seed, at its beginning: independent of this one and of how far this one is. */
  fork(stream: Stream): Random {
    return new Random(this.seed, stream);
  }

  /** Random 32-bit words. */
  bits(target: Uint32Array): Uint32Array {
    randomBits(target, this.#key, this.#position);
    this.#position += Math.ceil(target.length / 4);
    return target;
  }

  /** One number, uniform in the open interval from 0 to 1. */
  next(): number {
    let number = 0;
    this.#each(1, (uniforms) => {
      number = uniforms[0]!;
    });
    return number;
  }

  /** Fills uniformly from `low` on, up to but without `high`. */
  uniform<Target extends Floats>(target: Target, low = 0, high = 1): Target {
    if (!(low < high) || !Number.isFinite(high - low))
      refuse("low and high", "low < high", `${low} and ${high}`);
    const last = lastBelow(high, target);
    this.#each(target.length, (uniforms, start, count) => {
      for (let i = 0; i < count; i++) {
        target[start + i] = low + uniforms[i]! * (high - low);
        if (target[start + i]! >= high) target[start + i] = last;
      }
    });
    return target;
  }

  /** Fills with normal numbers of a mean and a standard deviation. */
  normal<Target extends Floats>(target: Target, mean = 0, deviation = 1): Target {
    checkNormal(mean, deviation);
    this.#each(target.length, (uniforms, start, count) => {
      for (let i = 0; i < count; i++) target[start + i] = mean + deviation * normalQuantile(uniforms[i]!);
    });
    return target;
  }

  /**
   * Fills with normal numbers conditioned to lie between `low` and `high`: values, not deviations; by default two
   * deviations on either side. Throws NumericsError where that interval holds no probability in float64.
   */
  truncatedNormal<Target extends Floats>(
    target: Target,
    mean = 0,
    deviation = 1,
    low = mean - 2 * deviation,
    high = mean + 2 * deviation,
  ): Target {
    checkNormal(mean, deviation);
    if (!(low < high)) refuse("low and high", "low < high", `${low} and ${high}`);
    // probabilities near 1 have lost their digits, so an interval above the mean is mirrored
    const sign = low + high > 2 * mean ? -1 : 1;
    const bounds = [(sign * (low - mean)) / deviation, (sign * (high - mean)) / deviation].map(normalCdf);
    const from = Math.min(...bounds);
    const mass = Math.max(...bounds) - from;
    if (!(mass > 0)) refuse("low and high", "an interval with some probability", `${low} and ${high}`);
    this.#each(target.length, (uniforms, start, count) => {
      for (let i = 0; i < count; i++) {
        const value = mean + sign * deviation * normalQuantile(from + uniforms[i]! * mass);
        target[start + i] = Math.min(Math.max(value, low), high);
      }
    });
    return target;
  }

  /** Fills with whole numbers from `low` on, up to but without `high`, each as likely within 2^-20. */
  integers(target: Int32Array, low: number, high: number): Int32Array {
    const isInt32 = (low | 0) === low && high - 1 === ((high - 1) | 0);
    if (!isInt32 || low >= high) refuse("low and high", "int32 numbers, low < high", `${low} and ${high}`);
    this.#each(target.length, (uniforms, start, count) => {
      for (let i = 0; i < count; i++) target[start + i] = low + Math.floor(uniforms[i]! * (high - low));
    });
    return target;
  }

  /** The whole numbers under `length` in random order. */
  permutation(length: number): Int32Array {
    checkLength(length);
    const order = Int32Array.from({ length }, (_, place) => place);
    this.#each(length, (uniforms, start, count) => {
      for (let place = start; place < start + count; place++) {
        const other = place + Math.floor(uniforms[place - start]! * (length - place));
        const value = order[other]!;
        order[other] = order[place]!;
        order[place] = value;
      }
    });
    return order;
  }

  /** The first `count` numbers of what `permutation(length)` would give, with memory for them alone. */
  choice(length: number, count: number): Int32Array {
    checkLength(length);
    if (!Number.isInteger(count) || count < 0 || count > length) {
      refuse("count", `a whole number from 0 to ${length}`, count);
    }
    const chosen = new Int32Array(count);
    const moved = new Map<number, number>();
    this.#each(count, (uniforms, start, size) => {
      for (let i = 0; i < size; i++) {
        const place = start + i;
        const other = place + Math.floor(uniforms[i]! * (length - place));
        chosen[place] = moved.get(other) ?? other;
        if (other !== place) moved.set(other, moved.get(place) ?? place);
        moved.delete(place);
      }
    });
    return chosen;
  }

  /**
   * Fills a [rows, columns] matrix uniformly among those with orthonormal rows, or orthonormal columns where there are
   * more rows than columns, times `gain`.
   *
   * Cost: 2 to 4 times rows · columns · min(rows, columns) multiply-adds, in float64.
   */
  orthogonal<Target extends Floats>(target: Target, rows: number, columns: number, gain = 1): Target {
    if (target.length !== rows * columns) {
      throw new ShapeError(
        `[Random] target is no [rows=${rows}, columns=${columns}] matrix: expected ${rows * columns} elements, got ${target.length}`,
      );
    }
    const isTall = rows > columns;
    const count = Math.min(rows, columns);
    const vectors = this.normal(new Float64Array(target.length));
    orthonormalize(vectors, count, Math.max(rows, columns));
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        target[i * columns + j] = gain * vectors[isTall ? j * rows + i : i * columns + j]!;
      }
    }
    return target;
  }

  /** Hands out uniform numbers (k + 1/2) / 2^52, never 0 nor 1, in pieces. */
  #each(length: number, use: (uniforms: Float64Array, start: number, count: number) => void): void {
    const uniforms = new Float64Array(Math.min(length, chunk));
    const words = new Uint32Array(Math.ceil(uniforms.length / 2) * 4);
    for (let start = 0; start < length; start += chunk) {
      const count = Math.min(chunk, length - start);
      randomBits(words, this.#key, this.#position);
      for (let i = 0; i < count; i++) {
        uniforms[i] = ((words[2 * i + 1]! >>> 12) * 2 ** 32 + words[2 * i]! + 0.5) * 2 ** -52;
      }
      this.#position += Math.ceil(count / 2);
      use(uniforms, start, count);
    }
  }
}

function refuse(argument: string, expected: string, got: unknown): never {
  throw new NumericsError(`[Random] ${argument} out of range: expected ${expected}, got ${got}`);
}

function checkLength(length: number): void {
  if (!Number.isInteger(length) || length < 0 || length > 2 ** 31 - 1) {
    refuse("length", "a whole number from 0 to 2^31 - 1", length);
  }
}

function checkNormal(mean: number, deviation: number): void {
  if (!Number.isFinite(mean)) refuse("mean", "a finite number", mean);
  if (!Number.isFinite(deviation) || deviation < 0) refuse("deviation", "a finite number >= 0", deviation);
}

/** The greatest number of the array's dtype under a bound. */
function lastBelow(bound: number, { BYTES_PER_ELEMENT: bytes }: Floats): number {
  const float = bytes === 4 ? Float32Array.of(bound) : Float64Array.of(bound);
  if (float[0]! < bound) return float[0]!;
  const bits = bytes === 4 ? new Int32Array(float.buffer) : new BigInt64Array(float.buffer);
  // patterns count away from zero on both sides
  if (bound === 0) return bytes === 4 ? -(2 ** -149) : -Number.MIN_VALUE;
  const step = bound > 0 ? -1 : 1;
  if (bits instanceof Int32Array) bits[0] = bits[0]! + step;
  else bits[0] = bits[0]! + BigInt(step);
  return float[0]!;
}
