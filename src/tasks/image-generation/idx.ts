import { FormatError } from "../../errors.ts";
import type { Images } from "./images.ts";

/** What an IDX file of bytes begins with: two zeros, the type 8, and the number of axes. */
const unsignedBytes = 8;

interface IdxArray {
  readonly shape: readonly number[];
  readonly values: Uint8Array;
}

/**
 * The array of unsigned bytes in an IDX file, the format of MNIST: 00 00 08 axes, the lengths as big-endian 32-bit
 * numbers, the values.
 *
 * @throws FormatError for another type, or a size that the lengths do not give.
 */
export function readIdx(file: Uint8Array, name: string): IdxArray {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (file.length < 8 || view.getUint16(0) !== 0 || file[2] !== unsignedBytes) {
    throw new FormatError(`[idx] ${name} is no IDX file of bytes: expected it to begin with 00 00 08`);
  }
  const axes = file[3]!;
  const start = 4 + 4 * axes;
  if (file.length < start) throw new FormatError(`[idx] ${name} ends inside its header`);
  const shape = Array.from({ length: axes }, (_, axis) => view.getUint32(4 + 4 * axis));
  const size = shape.reduce((product, length) => product * length, 1);
  if (file.length !== start + size) {
    throw new FormatError(
      `[idx] ${name} has another size than its lengths [${shape.join(", ")}] say: expected ${start + size} bytes, got ${file.length}`,
    );
  }
  return { shape, values: file.subarray(start) };
}

/**
 * Grey images and their classes from a pair of IDX files.
 *
 * @throws FormatError when the files are no images and labels of the same number.
 */
export function imagesFromIdx(images: Uint8Array, labels: Uint8Array, name: string): Images {
  const grey = readIdx(images, `${name} images`);
  const classes = readIdx(labels, `${name} labels`);
  const [count, height, width] = grey.shape;
  if (grey.shape.length !== 3 || classes.shape.length !== 1 || classes.shape[0] !== count) {
    throw new FormatError(
      `[idx] ${name} images and labels do not belong together: expected [N, height, width] and [N], got [${grey.shape.join(", ")}] and [${classes.shape.join(", ")}]`,
    );
  }
  return {
    shape: { height: height!, width: width!, channels: 1 },
    pixels: grey.values,
    labels: classes.values,
  };
}
