import { FormatError } from "../errors.ts";
import { formatShape, type Shape } from "../tensor/shape.ts";
import { quote, type RawTensor, readHeaderJson } from "./header-json.ts";
import { isSafetensorsDtype, type SafetensorsDtype, safetensorsBytes } from "./safetensors-dtype.ts";

/** Where one tensor lies: `begin` and `end` in bytes from the beginning of the data, which follows the header. */
export interface TensorInfo {
  readonly dtype: SafetensorsDtype;
  readonly shape: Shape;
  readonly begin: number;
  readonly end: number;
}

/** A header whose every claim has been checked against the others. */
export interface SafetensorsHeader {
  readonly metadata: Readonly<Record<string, string>>;
  /** In the order in which the header names them. */
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Bytes of data that the tensors cover, without holes. */
  readonly dataBytes: number;
}

/** Bytes before the header: its length, a little-endian number of 64 bits. */
export const prefixBytes = 8;
/** The longest header that is read, as in the format's reference implementation. */
export const maxHeaderBytes = 100_000_000;

/**
 * The length of the header, from the first 8 bytes of a file: what a ranged read asks for next.
 *
 * Throws FormatError for fewer bytes, a length over 100 MB, or one that reaches over the end of `fileBytes`.
 */
export function headerLength(start: Uint8Array, name: string, fileBytes?: number): number {
  if (start.length < prefixBytes) {
    throw new FormatError(
      `[safetensors] ${name} is too short: expected ${prefixBytes} bytes that tell the header's length, got ${start.length}`,
    );
  }
  const view = new DataView(start.buffer, start.byteOffset, prefixBytes);
  const length = view.getUint32(0, true) + view.getUint32(4, true) * 2 ** 32;
  if (length < 2 || length > maxHeaderBytes) {
    throw new FormatError(
      `[safetensors] the header of ${name} has no credible length: expected 2 to ${maxHeaderBytes} bytes, got ${length}`,
      "It may be a file of another format, or a pointer to a large file that was not downloaded.",
    );
  }
  if (fileBytes !== undefined && prefixBytes + length > fileBytes) {
    throw new FormatError(
      `[safetensors] ${name} ends inside its header: expected ${prefixBytes + length} bytes or more, got ${fileBytes}`,
    );
  }
  return length;
}

/**
 * Reads and checks a header without its 8-byte prefix. With `dataBytes`, the data must have exactly that length.
 *
 * Tensors may come in any order; their data must cover everything from 0 on, without holes or overlaps. Data need not
 * be aligned: old writers did not, and reading copies where it must. Throws FormatError naming file and tensor.
 */
export function parseHeader(header: Uint8Array, name: string, dataBytes?: number): SafetensorsHeader {
  let text: string;
  try {
    // a copy, because browsers do not decode shared memory
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(header.slice());
  } catch (cause) {
    throw new FormatError(`[safetensors] the header of ${name} is no text: expected UTF-8`, undefined, {
      cause,
    });
  }
  const { metadata, tensors: raw } = readHeaderJson(text, name);
  const tensors = new Map<string, TensorInfo>();
  for (const [tensor, description] of raw) {
    tensors.set(tensor, checkTensor(description, `[safetensors] tensor ${quote(tensor)} of ${name}`));
  }
  const covered = checkCover(tensors, name);
  if (dataBytes !== undefined && dataBytes !== covered) {
    throw new FormatError(
      `[safetensors] ${name} ${dataBytes < covered ? "ends inside its data" : "goes on after its data"}: expected ${covered} bytes after the header, got ${dataBytes}`,
    );
  }
  return { metadata: Object.fromEntries(metadata), tensors, dataBytes: covered };
}

function checkTensor({ dtype, shape, offsets }: RawTensor, who: string): TensorInfo {
  if (!isSafetensorsDtype(dtype)) {
    throw new FormatError(
      `${who} has a dtype that is not read: expected one of whole bytes such as F32 or BF16, got ${quote(dtype)}`,
    );
  }
  const [begin, end] = offsets as [number, number];
  if (offsets.length !== 2 || end < begin) {
    throw new FormatError(
      `${who} has no data_offsets: expected [begin, end], got [${offsets.slice(0, 4).join(", ")}]`,
    );
  }
  const axes = shape.length > 8 ? `${shape.length} axes` : formatShape(shape);
  let bytes = safetensorsBytes(dtype);
  for (const size of shape) {
    bytes *= size;
    if (bytes > Number.MAX_SAFE_INTEGER) {
      throw new FormatError(`${who} is too large: expected fewer than 2^53 bytes, got ${dtype} ${axes}`);
    }
  }
  if (bytes !== end - begin) {
    throw new FormatError(
      `${who} has data of the wrong length: expected ${bytes} bytes for ${dtype} ${axes}, got ${end - begin} from ${begin} to ${end}`,
    );
  }
  return { dtype, shape, begin, end };
}

/** The end of data that begins at 0 and that every tensor continues where the one before it ended. */
function checkCover(tensors: ReadonlyMap<string, TensorInfo>, name: string): number {
  const inOrder = [...tensors].sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const [tensor, { begin, end }] of inOrder) {
    if (begin !== covered) {
      throw new FormatError(
        `[safetensors] tensor ${quote(tensor)} of ${name} ${begin < covered ? "overlaps another" : "leaves a hole"}: expected data from byte ${covered} on, got ${begin}`,
      );
    }
    covered = end;
  }
  return covered;
}
