import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { ModelState } from "../../models/state.ts";
import { Random } from "../../tensor/random.ts";
import { countOf, fromSequences, type Images, toSequences, valuesOf } from "./images.ts";
import type { PixelModel } from "./pixel-model.ts";

/** What images are asked for. */
export interface GenerateImagesOptions {
  readonly count: number;
  /** The same seed gives the same images, each whatever its neighbours; 0 unless given. */
  readonly seed?: number;
  /** 1 unless given. */
  readonly temperature?: number;
  /** The class of all images, or of each; any unless given. */
  readonly label?: number | readonly number[];
  /** Images whose first values are kept: as many as `count`, or one for all. */
  readonly given?: Images;
  /** How many values of `given` are kept, in the order of the model; half of them unless given. */
  readonly keep?: number;
  readonly signal?: AbortSignal;
  /** Called with the values done and in all. */
  readonly onProgress?: (done: number, total: number) => void;
}

/**
 * What a model says next of several sequences that it is fed: through carried states where every layer has one, by the
 * whole prefix again at each step where one has none.
 */
export class PixelStream {
  readonly #model: PixelModel;
  readonly #device: Device;
  readonly #count: number;
  readonly #states: ModelState | undefined;
  readonly #slots: readonly number[];
  /** Ids fed so far, `[count, T]`. */
  readonly #tokens: Int32Array;
  #length = 0;

  constructor(model: PixelModel, device: Device, count: number) {
    this.#model = model;
    this.#device = device;
    this.#count = count;
    this.#slots = Array.from({ length: count }, (_, n) => n);
    const carries = model.decoder.mixers.every((mixer) => mixer.carriesState);
    this.#states = carries ? model.decoder.createState(device, count) : undefined;
    this.#tokens = new Int32Array(count * valuesOf(model.config.shape));
  }

  /** Ids fed to every sequence so far. */
  get length(): number {
    return this.#length;
  }

  /** Feeds `tokens [count, length]`; returns the outputs after the last, row by row. */
  advance(tokens: Int32Array): Float32Array {
    const [count, states] = [this.#count, this.#states];
    const time = tokens.length / count;
    const room = this.#tokens.length / count;
    const from = states === undefined ? 0 : this.#length;
    for (let n = 0; n < count; n++)
      this.#tokens.set(tokens.subarray(n * time, (n + 1) * time), n * room + this.#length);
    this.#length += time;
    const rows = { tokens: this.#tokens, count, from, length: this.#length - from };
    const context = states === undefined ? {} : { state: { states, slots: this.#slots } };
    return scope(this.#device, () =>
      noGrad(() =>
        Float32Array.from(this.#model.forward(rows, this.#device, { ...context, lastOnly: true }).dataSync()),
      ),
    );
  }

  dispose(): void {
    this.#states?.dispose();
  }
}

/**
 * Draws images value by value, all at once: unconditional, of a class, or completions of given beginnings.
 *
 * @returns `count` images. Cost for models of recurrent layers: a step of the model for every value.
 * @throws ConfigError for a count, temperature, class or beginning that makes no sense; the signal's reason when it aborts.
 * @example
 * const shape = { height: 4, width: 4, channels: 1 } as const;
 * const sizes = { width: 16, layers: 1, heads: 2, pattern: ["linear"] };
 * const pixels = new PixelModel({ shape, output: "mixture", classes: 10, decoder: sizes });
 * initialize(pixels, device, random);
 * const sevens = await generateImages(pixels, device, { count: 2, label: 7 });
 */
export async function generateImages(
  model: PixelModel,
  device: Device,
  options: GenerateImagesOptions,
): Promise<Images> {
  const { count, seed = 0, temperature = 1, signal, onProgress } = options;
  checkOptions(options);
  const { shape } = model.config;
  const total = valuesOf(shape);
  const { sequences, kept } = beginnings(model, options, total);
  const chances = Array.from({ length: count }, (_, n) =>
    new Random(seed, `image ${n}`).uniform(new Float64Array(2 * total)),
  );
  const { width } = model.output;
  const stream = new PixelStream(model, device, count);
  try {
    let tokens = firstTokens(model, options, sequences, kept);
    for (let t = kept; t < total; t++) {
      signal?.throwIfAborted();
      const outputs = stream.advance(tokens);
      tokens = new Int32Array(count);
      for (let n = 0; n < count; n++) {
        const chance = chances[n]!;
        const row = outputs.subarray(n * width, (n + 1) * width);
        tokens[n] = model.output.sample(row, [chance[2 * t]!, chance[2 * t + 1]!], temperature);
        sequences[n * total + t] = tokens[n]!;
      }
      onProgress?.(t + 1, total);
      // Lets timers and signals in.
      if (t % 16 === 0) await new Promise((resolve) => setTimeout(resolve, 0));
    }
  } finally {
    stream.dispose();
  }
  return fromSequences(shape, model.channelOrder, sequences);
}

function checkOptions({ count, temperature = 1, label, given }: GenerateImagesOptions): void {
  if (!Number.isInteger(count) || count < 1)
    throw new ConfigError(`[images] count is a whole number >= 1, got ${count}`);
  if (!(temperature >= 0 && temperature < Number.POSITIVE_INFINITY))
    throw new ConfigError(`[images] temperature is a number >= 0, got ${temperature}`);
  if (typeof label === "object" && label.length !== count)
    throw new ConfigError(`[images] there is a label for each image: expected ${count}, got ${label.length}`);
  if (given === undefined) return;
  const there = countOf(given);
  if (there === 1 || there === count) return;
  throw new ConfigError(`[images] beginnings: expected 1 or ${count} images, got ${there}`);
}

/** Sequences with what is kept of the given images, and how many values that is. */
function beginnings(
  model: PixelModel,
  { count, given, keep }: GenerateImagesOptions,
  total: number,
): { readonly sequences: Uint8Array; readonly kept: number } {
  const sequences = new Uint8Array(count * total);
  if (given === undefined) return { sequences, kept: 0 };
  const { height, width, channels } = model.config.shape;
  if (given.shape.height !== height || given.shape.width !== width || given.shape.channels !== channels) {
    const { shape } = given;
    throw new ConfigError(
      `[images] beginnings are of another shape: expected ${height} × ${width} × ${channels}, got ${shape.height} × ${shape.width} × ${shape.channels}`,
    );
  }
  const kept = keep ?? Math.floor(total / 2);
  if (!Number.isInteger(kept) || kept < 0 || kept > total)
    throw new ConfigError(`[images] keep is a number of values from 0 to ${total}, got ${kept}`);
  const own = toSequences(given, model.channelOrder);
  for (let n = 0; n < count; n++) {
    const from = own.length === total ? 0 : n * total;
    sequences.set(own.subarray(from, from + kept), n * total);
  }
  return { sequences, kept };
}

/** The start of every image and what is kept of it, `[count, 1 + kept]`. */
function firstTokens(
  model: PixelModel,
  { count, label }: GenerateImagesOptions,
  sequences: Uint8Array,
  kept: number,
): Int32Array {
  const total = sequences.length / count;
  const tokens = new Int32Array(count * (kept + 1));
  for (let n = 0; n < count; n++) {
    tokens[n * (kept + 1)] = model.start(typeof label === "object" ? label[n] : label);
    tokens.set(sequences.subarray(n * total, n * total + kept), n * (kept + 1) + 1);
  }
  return tokens;
}
