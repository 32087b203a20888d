import { ConfigError, DtypeError, FormatError, OutOfMemoryError, ShapeError } from "../errors.ts";
import { checkShape, formatShape, type Shape, sizeOf } from "../tensor/shape.ts";
import { quote } from "./header-json.ts";
import {
  isSafetensorsDtype,
  type SafetensorsDtype,
  safetensorsBytes,
  safetensorsRanks,
} from "./safetensors-dtype.ts";
import { headerLength, maxHeaderBytes, parseHeader, prefixBytes } from "./safetensors-header.ts";

/** One tensor as a file holds it: little-endian, row-major, without gaps. */
export interface TensorEntry {
  readonly dtype: SafetensorsDtype;
  readonly shape: Shape;
  readonly bytes: Uint8Array;
}

/** A tensor to be written; where bytes come from a function it is called once, when they are due. */
export interface TensorSource {
  readonly dtype: SafetensorsDtype;
  readonly shape: Shape;
  readonly bytes: Uint8Array | (() => Uint8Array | Promise<Uint8Array>);
}

/** A whole file in memory. */
export interface Safetensors {
  readonly metadata: Readonly<Record<string, string>>;
  /** By name, in the order in which the header names them. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
}

/**
 * Reads a safetensors file that is in memory. The tensors' bytes are views of `bytes`, not copies.
 *
 * `name` is what errors call the file. Throws FormatError, naming file and tensor, for whatever the format does not
 * allow: see `headerLength` and `parseHeader`.
 *
 * @example
 * const bytes = writeSafetensors({ weight: fromValues(Float32Array.of(1, 2, 3, 4), [2, 2]) });
 * const { tensors } = readSafetensors(bytes);
 * console.log(toFloat32(tensors.get("weight")!)); // Float32Array(4) [ 1, 2, 3, 4 ]
 */
export function readSafetensors(
  bytes: Uint8Array,
  { name = "the file" }: { name?: string } = {},
): Safetensors {
  const dataStart = prefixBytes + headerLength(bytes, name, bytes.length);
  const header = parseHeader(bytes.subarray(prefixBytes, dataStart), name, bytes.length - dataStart);
  const tensors = new Map<string, TensorEntry>();
  for (const [tensor, { dtype, shape, begin, end }] of header.tensors) {
    tensors.set(tensor, { dtype, shape, bytes: bytes.subarray(dataStart + begin, dataStart + end) });
  }
  return { metadata: header.metadata, tensors };
}

/**
 * Writes tensors in the safetensors format, aligned to 8 bytes.
 *
 * The bytes do not depend on the order of the arguments: wider dtypes come first, tensors of one dtype and keys of the
 * metadata by code point, as the format's reference implementation sorts tensors. Throws ShapeError, DtypeError or
 * ConfigError naming the tensor, and OutOfMemoryError where the whole does not fit one array.
 */
export function writeSafetensors(
  tensors: Readonly<Record<string, TensorEntry>> | Iterable<readonly [string, TensorEntry]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const { head, order, dataBytes } = layOut(tensors, metadata);
  const total = head.length + dataBytes;
  let file: Uint8Array;
  try {
    file = new Uint8Array(total);
  } catch {
    throw new OutOfMemoryError(
      `[writeSafetensors] the file does not fit one array: ${total} bytes asked for`,
      "saveSafetensors writes tensor by tensor.",
    );
  }
  file.set(head);
  let at = head.length;
  for (const [, { bytes }] of order) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** The beginning of a file up to its data, and the order in which the tensors' bytes follow. */
export function layOut<Source extends TensorSource>(
  tensors: Readonly<Record<string, Source>> | Iterable<readonly [string, Source]>,
  metadata: Readonly<Record<string, string>>,
): { head: Uint8Array; order: readonly (readonly [string, Source])[]; dataBytes: number } {
  const entries =
    Symbol.iterator in tensors
      ? [...(tensors as Iterable<readonly [string, Source]>)]
      : Object.entries(tensors);
  const ranks = safetensorsRanks();
  const rank = ({ dtype }: Source) => ranks.get(dtype) ?? 0;
  const order = entries.sort(([left, a], [right, b]) => rank(b) - rank(a) || byCodePoint(left, right));
  const members: string[] = [];
  const keys = Object.keys(metadata).sort(byCodePoint);
  if (keys.length > 0) {
    const pairs = keys.map(
      (key) => `${encode("metadata", key)}:${encode(`metadata ${quote(key)}`, metadata[key])}`,
    );
    members.push(`"__metadata__":{${pairs.join(",")}}`);
  }
  const names = new Set<string>();
  let dataBytes = 0;
  for (const [name, source] of order) {
    if (name === "__metadata__" || names.has(name)) {
      throw new ConfigError(
        `[safetensors] a name cannot be used: expected each name once and no __metadata__, got ${quote(name)}`,
      );
    }
    names.add(name);
    const end = dataBytes + sourceBytes(name, source);
    const { dtype, shape } = source;
    members.push(
      `${encode("name", name)}:{"dtype":"${dtype}","shape":[${shape.join(",")}],"data_offsets":[${dataBytes},${end}]}`,
    );
    dataBytes = end;
  }
  return { head: encodeHead(`{${members.join(",")}}`), order, dataBytes };
}

/** Bytes that a tensor takes in the file, once its claims agree. */
function sourceBytes(name: string, { dtype, shape, bytes }: TensorSource): number {
  const who = `safetensors] tensor ${quote(name)}`;
  if (!isSafetensorsDtype(dtype)) {
    throw new DtypeError(
      `[${who} has no dtype of the format: expected one such as F32 or BF16, got ${dtype}`,
    );
  }
  checkShape("safetensors", shape);
  const length = sizeOf(shape) * safetensorsBytes(dtype);
  if (typeof bytes !== "function" && bytes.length !== length) {
    throw new ShapeError(
      `[${who} has data of the wrong length: expected ${length} bytes for ${dtype} ${formatShape(shape)}, got ${bytes.length}`,
    );
  }
  return length;
}

function encodeHead(json: string): Uint8Array {
  const text = new TextEncoder().encode(json);
  const length = Math.ceil(text.length / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new FormatError(
      `[safetensors] the header is too long: expected ${maxHeaderBytes} bytes or fewer, got ${length}`,
    );
  }
  const head = new Uint8Array(prefixBytes + length).fill(0x20);
  const view = new DataView(head.buffer);
  view.setUint32(0, length, true);
  view.setUint32(4, 0, true);
  head.set(text, prefixBytes);
  return head;
}

function encode(what: string, text: unknown): string {
  if (typeof text !== "string" || /\p{Surrogate}/u.test(text)) {
    throw new ConfigError(
      `[safetensors] ${what} cannot be written: expected well-formed text, got ${JSON.stringify(text)}`,
    );
  }
  return JSON.stringify(text);
}

/** The order of UTF-8 bytes, which the order of UTF-16 units is not. */
function byCodePoint(left: string, right: string): number {
  for (let i = 0; i < left.length && i < right.length; i++) {
    if (left[i] !== right[i]) return left.codePointAt(i)! - right.codePointAt(i)!;
  }
  return left.length - right.length;
}
