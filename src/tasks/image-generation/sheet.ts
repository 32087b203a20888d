import { ConfigError } from "../../errors.ts";
import { countOf, type ImageShape, type Images, valuesOf } from "./images.ts";

/** One picture: values from 0 to 255, row by row. */
export interface Picture extends ImageShape {
  readonly pixels: Uint8Array;
}

/** How images lie on a sheet. */
export interface SheetOptions {
  /** Images beside each other; a square of them unless given. */
  readonly columns?: number;
  /** Pixels of the sheet for each pixel of an image, along each side; 2 unless given. */
  readonly scale?: number;
  /** Pixels between images; 2 unless given. */
  readonly gap?: number;
  /** Grey level between images; 96 unless given. */
  readonly background?: number;
}

/**
 * Images side by side on one picture, row by row.
 *
 * @throws ConfigError for no images, or a layout that is none.
 */
export function sheetOf(images: Images, options: SheetOptions = {}): Picture {
  const count = countOf(images);
  const { columns = Math.ceil(Math.sqrt(count)), scale = 2, gap = 2, background = 96 } = options;
  if (count === 0) throw new ConfigError("[sheet] there are no images: expected one at least");
  for (const [name, value, least] of [
    ["columns", columns, 1],
    ["scale", scale, 1],
    ["gap", gap, 0],
  ] as const) {
    if (Number.isInteger(value) && value >= least) continue;
    throw new ConfigError(`[sheet] ${name} is a whole number >= ${least}, got ${value}`);
  }
  const { height, width, channels } = images.shape;
  const [across, down] = [Math.min(columns, count), Math.ceil(count / columns)];
  const stepX = width * scale + gap;
  const stepY = height * scale + gap;
  const picture = { height: down * stepY + gap, width: across * stepX + gap, channels };
  const pixels = new Uint8Array(valuesOf(picture)).fill(background);
  const size = valuesOf(images.shape);
  for (let n = 0; n < count; n++) {
    const left = gap + (n % columns) * stepX;
    const top = gap + Math.floor(n / columns) * stepY;
    const own = images.pixels.subarray(n * size, (n + 1) * size);
    for (let y = 0; y < height * scale; y++) {
      for (let x = 0; x < width * scale; x++) {
        const from = (Math.floor(y / scale) * width + Math.floor(x / scale)) * channels;
        pixels.set(own.subarray(from, from + channels), ((top + y) * picture.width + left + x) * channels);
      }
    }
  }
  return { ...picture, pixels };
}

const ramp = " .:-=+*#%@";

/**
 * Images side by side as lines of letters, two rows of pixels to a line: darkest " ", brightest "@".
 *
 * @param width Letters of a line at most; images that do not fit are left out.
 */
export function printImages({ shape, pixels }: Images, width = 80): string {
  const { channels } = shape;
  const size = valuesOf(shape);
  const across = Math.max(1, Math.min(pixels.length / size, Math.floor(width / (shape.width + 1))));
  const level = (n: number, y: number, x: number): number => {
    let sum = 0;
    for (let c = 0; c < channels; c++)
      sum += pixels[n * size + (Math.min(y, shape.height - 1) * shape.width + x) * channels + c]!;
    return sum / channels / 255;
  };
  const lines: string[] = [];
  for (let y = 0; y < shape.height; y += 2) {
    const parts = Array.from({ length: across }, (_, n) =>
      Array.from({ length: shape.width }, (_, x) => {
        const mean = (level(n, y, x) + level(n, y + 1, x)) / 2;
        return ramp[Math.min(ramp.length - 1, Math.floor(mean * ramp.length))];
      }).join(""),
    );
    lines.push(parts.join(" ").trimEnd());
  }
  return lines.join("\n");
}
