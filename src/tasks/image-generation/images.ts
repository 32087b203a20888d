import { ConfigError, ShapeError } from "../../errors.ts";

/** Sides and colours of an image. */
export interface ImageShape {
  readonly height: number;
  readonly width: number;
  /** 1 for grey, 3 for red, green and blue. */
  readonly channels: 1 | 3;
}

/** Images side by side: values from 0 to 255, row by row, the channels of a pixel together. */
export interface Images {
  readonly shape: ImageShape;
  /** `[count, height, width, channels]` */
  readonly pixels: Uint8Array;
  /** The class of every image, where there are classes. */
  readonly labels?: Uint8Array;
}

/** How a model reads colours: pixel by pixel, or one channel after the other. */
export type ChannelOrder = "interleaved" | "planar";

/** Values of one image. */
export function valuesOf({ height, width, channels }: ImageShape): number {
  return height * width * channels;
}

/** Images in a set. */
export function countOf({ shape, pixels }: Images): number {
  return pixels.length / valuesOf(shape);
}

/** Some images of a set, in the order of their numbers. */
export function chooseImages(images: Images, numbers: ArrayLike<number>): Images {
  const size = valuesOf(images.shape);
  const pixels = new Uint8Array(numbers.length * size);
  for (let n = 0; n < numbers.length; n++) {
    const from = numbers[n]! * size;
    pixels.set(images.pixels.subarray(from, from + size), n * size);
  }
  const { labels } = images;
  if (labels === undefined) return { shape: images.shape, pixels };
  return { shape: images.shape, pixels, labels: Uint8Array.from(numbers, (n) => labels[n]!) };
}

/**
 * Where the value at every place of the sequence stands in an image: rows from the top, pixels from the left.
 *
 * @throws ConfigError for sides that are no whole numbers >= 1.
 */
export function sequenceOrder(shape: ImageShape, order: ChannelOrder): Int32Array {
  const { height, width, channels } = shape;
  for (const [name, side] of Object.entries({ height, width })) {
    if (Number.isInteger(side) && side >= 1) continue;
    throw new ConfigError(`[images] ${name} is a side in pixels: expected a whole number >= 1, got ${side}`);
  }
  const pixels = height * width;
  return Int32Array.from({ length: pixels * channels }, (_, t) =>
    order === "interleaved" ? t : (t % pixels) * channels + Math.floor(t / pixels),
  );
}

/** Where neighbours lie: columns to the right, rows below. */
const offsets = [
  [-1, 0],
  [-2, 0],
  [-1, -1],
  [0, -1],
  [1, -1],
  [0, -2],
] as const;

/**
 * The neighbours of every value of a sequence that come before it: two to the left, above to the left, above, above to
 * the right, two above, all of the same channel, as places `[6][T]` of the same sequence; −1 outside the image.
 */
export function neighbourPlaces(shape: ImageShape, order: ChannelOrder): readonly Int32Array[] {
  const { height, width, channels } = shape;
  const step = order === "interleaved" ? channels : 1;
  return offsets.map(([right, below]) =>
    Int32Array.from({ length: valuesOf(shape) }, (_, t) => {
      const x = (Math.floor(t / step) % width) + right;
      const y = (Math.floor(t / (step * width)) % height) + below;
      return y < 0 || x < 0 || x >= width ? -1 : t + (right + below * width) * step;
    }),
  );
}

/** Pixels of images in the order that a model reads them. */
export function toSequences({ shape, pixels }: Images, order: ChannelOrder): Uint8Array {
  const places = sequenceOrder(shape, order);
  return moved(pixels, places, (sequence, image, t) => {
    sequence[t] = image[places[t]!]!;
  });
}

/** Pixels of images from the order that a model writes them. */
export function fromSequences(shape: ImageShape, order: ChannelOrder, sequences: Uint8Array): Images {
  const places = sequenceOrder(shape, order);
  const pixels = moved(sequences, places, (image, sequence, t) => {
    image[places[t]!] = sequence[t]!;
  });
  return { shape, pixels };
}

function moved(
  values: Uint8Array,
  { length }: Int32Array,
  move: (to: Uint8Array, from: Uint8Array, t: number) => void,
): Uint8Array {
  if (values.length % length !== 0) {
    throw new ShapeError(
      `[images] the values make no whole images: expected a multiple of ${length}, got ${values.length}`,
    );
  }
  const result = new Uint8Array(values.length);
  for (let from = 0; from < values.length; from += length) {
    const [to, source] = [result.subarray(from, from + length), values.subarray(from, from + length)];
    for (let t = 0; t < length; t++) move(to, source, t);
  }
  return result;
}
