import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder, type ModelContext } from "../../models/decoder.ts";
import { Embedding } from "../../nn/embedding.ts";
import { type Init, normalInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Module } from "../../nn/module.ts";
import { add } from "../../ops/arithmetic/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import type { Random } from "../../tensor/random.ts";
import type { Task } from "../../train/loop.ts";
import {
  type ChannelOrder,
  chooseImages,
  countOf,
  type ImageShape,
  type Images,
  neighbourPlaces,
  toSequences,
  valuesOf,
} from "./images.ts";
import { outputs, type PixelOutput } from "./output.ts";

/** Values of a pixel, which are the first ids; then the start of an image of any class, then those of each class. */
const levels = 256;

/**
 * Near values begin near each other: cosines of the value, of random frequency and phase, so that what is learned of one
 * value holds for its likes from the start. The last entry, no value, is zeros.
 */
const smoothInit: Init = ([entries, width], random) => {
  const frequencies = random.normal(new Float64Array(width!), 0, 4);
  const phases = random.uniform(new Float64Array(width!), 0, 2 * Math.PI);
  const table = new Float64Array(entries! * width!);
  for (let value = 0; value < levels; value++) {
    for (let i = 0; i < width!; i++)
      table[value * width! + i] = 0.2 * Math.cos((frequencies[i]! * value) / (levels - 1) + phases[i]!);
  }
  return table;
};

/** A model of images, as data. */
export interface PixelModelConfig {
  readonly shape: ImageShape;
  /** `interleaved` unless given. */
  readonly channelOrder?: ChannelOrder;
  /** What the model says of a pixel. */
  readonly output: PixelOutput["id"];
  /** Classes that an image may be asked of, which every place is then told; 0 unless given. */
  readonly classes?: number;
  /** Every place is also told its neighbours in the image; the paper's models are told the value before it alone. */
  readonly seesNeighbours?: boolean;
  /** Layers of the decoder. Its vocabulary and positions follow from the images. */
  readonly decoder: Omit<DecoderConfig, "vocabularySize" | "positions" | "tied">;
}

/** Sequences that a model is fed: rows of ids beginning with the start, and which part of them is new to it. */
export interface PixelRows {
  /** `[count, T]` */
  readonly tokens: Int32Array;
  readonly count: number;
  /** Place of the first new id; 0 unless given. */
  readonly from?: number;
  /** New ids of each row; all unless given. */
  readonly length?: number;
}

/** Whole images on their way to a model: rows of ids, and the values they foretell. */
export interface PixelBatch extends PixelRows {
  readonly values: Int32Array;
}

/**
 * An image as a sequence, value after value: P(x) = ∏ P(x_t | x_1 … x_{t−1}, class), as in "Transformers are RNNs"
 * (arXiv 2006.16236v3, section 4.2). Positions are learned.
 *
 * @throws ConfigError for shapes or layers that make no model.
 * @example
 * const shape = { height: 28, width: 28, channels: 1 } as const;
 * const sizes = { width: 64, layers: 2, heads: 2, pattern: ["linear"] };
 * const pixels = new PixelModel({ shape, output: "mixture", decoder: sizes });
 */
export class PixelModel extends Module {
  readonly decoder: Decoder;
  readonly neighbours: readonly Embedding[];
  /** A row of its own for images of any class, then one of each; none where there are no classes. */
  readonly label: Embedding | undefined;
  readonly head: Linear;
  readonly #places: readonly Int32Array[];
  readonly #config: PixelModelConfig;
  readonly #output: PixelOutput;

  constructor(config: PixelModelConfig) {
    super();
    this.#config = config;
    this.#output = outputs[config.output];
    const { classes = 0, decoder } = config;
    this.decoder = new Decoder({
      ...decoder,
      vocabularySize: levels + 1 + classes,
      positions: { kind: "learned", length: valuesOf(config.shape) },
      tied: true,
    });
    this.#places = config.seesNeighbours ? neighbourPlaces(config.shape, this.channelOrder) : [];
    this.neighbours = this.#places.map(() => new Embedding(levels + 1, decoder.width, smoothInit));
    // As large as what is said of a value: told at the first place alone, a class is long forgotten by the last.
    this.label = classes > 0 ? new Embedding(classes + 1, decoder.width, normalInit(0.2)) : undefined;
    const { width, biasInit } = this.#output;
    this.head = new Linear(decoder.width, width, { bias: true, init: normalInit(0.02), biasInit });
  }

  get config(): PixelModelConfig {
    return this.#config;
  }

  get output(): PixelOutput {
    return this.#output;
  }

  get channelOrder(): ChannelOrder {
    return this.#config.channelOrder ?? "interleaved";
  }

  /**
   * The id that an image of a class begins with; of any class where none is named.
   *
   * @throws ConfigError for a class that the model does not know.
   */
  start(label?: number): number {
    const { classes = 0 } = this.#config;
    if (label === undefined) return levels;
    if (Number.isInteger(label) && label >= 0 && label < classes) return levels + 1 + label;
    throw new ConfigError(
      classes === 0
        ? `[images] the model knows no classes: expected no label, got ${label}`
        : `[images] label: expected a class from 0 to ${classes - 1}, got ${label}`,
    );
  }

  /**
   * What is said of the next values, `[B, length, width]`, or `[B, 1, width]` with `lastOnly`.
   *
   * @param rows Ids of `count` sequences from their start, `[count, T]`.
   * @param from Place of the first id that is fed; those before it are in the state.
   */
  forward(rows: PixelRows, device: Device, context: ModelContext = {}): Tensor {
    const { tokens, count, from = 0, length = tokens.length / count } = rows;
    const time = tokens.length / count;
    const integers = (of: (n: number, t: number) => number): Tensor => {
      const ids = new Int32Array(count * length);
      for (let n = 0; n < count; n++) for (let t = 0; t < length; t++) ids[n * length + t] = of(n, from + t);
      return tensor(device, ids, [count, length], { dtype: "int32" });
    };
    const parts = this.#places.map((places, i) =>
      this.neighbours[i]!.forward(
        integers((n, t) => (places[t]! < 0 ? levels : tokens[n * time + places[t]! + 1]!)),
      ),
    );
    if (this.label !== undefined)
      parts.push(this.label.forward(integers((n) => Math.max(0, tokens[n * time]! - levels))));
    const beside = parts.length === 0 ? {} : { beside: parts.reduce((sum, part) => add(sum, part)) };
    const ids = integers((n, t) => tokens[n * time + t]!);
    return this.head.forward(this.decoder.features(ids, { ...context, ...beside }).features);
  }

  /** Mean nats of a value. */
  loss(batch: PixelBatch, device: Device, context: ModelContext = {}): Tensor {
    const { values } = batch;
    const rows = reshape(this.forward(batch, device, context), [-1, this.#output.width]);
    return this.#output.loss(rows, tensor(device, values, [values.length], { dtype: "int32" }));
  }

  /** Images as rows of ids; without labels they begin as images of any class. */
  batchOf(images: Images, labels?: ArrayLike<number | undefined>): PixelBatch {
    const sequences = toSequences(images, this.channelOrder);
    const count = countOf(images);
    const time = sequences.length / Math.max(1, count);
    const tokens = new Int32Array(sequences.length);
    for (let n = 0; n < count; n++) {
      tokens[n * time] = this.start(labels?.[n]);
      for (let t = 1; t < time; t++) tokens[n * time + t] = sequences[n * time + t - 1]!;
    }
    return { tokens, values: Int32Array.from(sequences), count };
  }
}

/** Training of a model of images: the mean nats of a value. */
export function imageTask(model: PixelModel, device: Device): Task<PixelBatch> {
  return {
    module: model,
    loss: (batch, { training, random }) => model.loss(batch, device, { training, random }),
    size: ({ values }) => values.length,
  };
}

/** Share of training images whose class the model is not told, so that one model does both. */
const unnamedShare = 0.5;

/** A batch drawn from a set; the same for the same random stream. */
export function drawBatch(model: PixelModel, images: Images, count: number, random: Random): PixelBatch {
  const chosen = chooseImages(images, random.integers(new Int32Array(count), 0, countOf(images)));
  if ((model.config.classes ?? 0) === 0 || chosen.labels === undefined) return model.batchOf(chosen);
  const told = random.uniform(new Float64Array(count));
  return model.batchOf(
    chosen,
    Array.from(chosen.labels, (label, n) => (told[n]! < unnamedShare ? undefined : label)),
  );
}

/** Bits of a value from nats: what papers print as bits per dimension. */
export function bitsOf(nats: number): number {
  return nats / Math.LN2;
}
