import { DtypeError, NumericsError, ShapeError } from "../errors.ts";
import { decodeBfloat16, decodeFloat16, encodeBfloat16, encodeFloat16 } from "../tensor/half.ts";
import { formatShape, type Shape, sizeOf } from "../tensor/shape.ts";
import type { TensorEntry } from "./safetensors.ts";
import { type SafetensorsDtype, safetensorsBytes } from "./safetensors-dtype.ts";

const arrays = {
  BOOL: Uint8Array,
  U8: Uint8Array,
  I8: Int8Array,
  I16: Int16Array,
  U16: Uint16Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  I32: Int32Array,
  U32: Uint32Array,
  F32: Float32Array,
  F64: Float64Array,
  I64: BigInt64Array,
  U64: BigUint64Array,
} as const;

type Elements =
  | Int8Array
  | Int16Array
  | Uint16Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | Int32Array
  | Uint8Array
  | BigInt64Array
  | BigUint64Array;

/** The entry's elements without a copy where they are aligned; halves as their patterns. */
function elementsOf(who: string, { dtype, bytes }: TensorEntry): Elements {
  if (!Object.hasOwn(arrays, dtype)) {
    throw new DtypeError(
      `[${who}] ${dtype} is not converted: expected one of ${Object.keys(arrays).join(", ")}, got ${dtype}`,
    );
  }
  const { [dtype as keyof typeof arrays]: ElementArray } = arrays;
  const size = safetensorsBytes(dtype);
  const aligned = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  return new ElementArray(aligned.buffer as ArrayBuffer, aligned.byteOffset, bytes.length / size);
}

function checkTarget(who: string, elements: Elements, target: ArrayLike<number> | undefined): void {
  if (target !== undefined && target.length !== elements.length) {
    throw new ShapeError(
      `[${who}] target has the wrong length: expected ${elements.length} elements, got ${target.length}`,
    );
  }
}

const isBig = (elements: Elements): elements is BigInt64Array | BigUint64Array =>
  elements instanceof BigInt64Array || elements instanceof BigUint64Array;

/**
 * Elements as float32: exact from F16, BF16 and small integers, rounded to nearest from the rest.
 *
 * Without a target F32 data that is aligned comes back as a view of the entry. Throws DtypeError for the 8-bit floats
 * and C64, and ShapeError for a target of another length.
 */
export function toFloat32(entry: TensorEntry, target?: Float32Array): Float32Array {
  const elements = elementsOf("toFloat32", entry);
  checkTarget("toFloat32", elements, target);
  if (entry.dtype === "F16") return decodeFloat16(elements as Uint16Array, target);
  if (entry.dtype === "BF16") return decodeBfloat16(elements as Uint16Array, target);
  if (target === undefined && elements instanceof Float32Array) return elements;
  return fill(target ?? new Float32Array(elements.length), elements);
}

/** Elements as float64, exact but for I64 and U64 from 2^53 on; otherwise as `toFloat32`. */
export function toFloat64(entry: TensorEntry, target?: Float64Array): Float64Array {
  const elements = elementsOf("toFloat64", entry);
  checkTarget("toFloat64", elements, target);
  if (target === undefined && elements instanceof Float64Array) return elements;
  const isHalf = entry.dtype === "F16" || entry.dtype === "BF16";
  return fill(target ?? new Float64Array(elements.length), isHalf ? toFloat32(entry) : elements);
}

/** Integers as int32, such as token ids; throws DtypeError for floats and NumericsError for one that does not fit. */
export function toInt32(entry: TensorEntry, target?: Int32Array): Int32Array {
  const elements = elementsOf("toInt32", entry);
  checkTarget("toInt32", elements, target);
  if (/^B?F/.test(entry.dtype)) {
    throw new DtypeError(`[toInt32] floats are not converted: expected an integer dtype, got ${entry.dtype}`);
  }
  if (target === undefined && elements instanceof Int32Array) return elements;
  for (let i = 0; i < elements.length; i++) {
    const value = Number(elements[i]);
    if (value !== (value | 0)) {
      throw new NumericsError(
        `[toInt32] element ${i} does not fit: expected -2^31 to 2^31 - 1, got ${elements[i]}`,
      );
    }
  }
  return fill(target ?? new Int32Array(elements.length), elements);
}

function fill<Target extends Float32Array | Float64Array | Int32Array>(
  target: Target,
  elements: Elements,
): Target {
  if (!isBig(elements)) target.set(elements);
  else for (let i = 0; i < elements.length; i++) target[i] = Number(elements[i]);
  return target;
}

/** Arrays whose elements a file can hold. */
export type StorableArray = Float32Array | Float64Array | Int32Array | Uint8Array | BigInt64Array;

/**
 * The entry that holds an array's elements, as its own dtype unless another is asked for: float arrays as F64, F32,
 * F16 or BF16 rounded once to nearest even, Int32Array as I32 or I64.
 *
 * Where nothing is converted the entry is a view of the array. Throws ShapeError where the shape has another number of
 * elements and DtypeError for other conversions.
 */
export function fromValues(values: StorableArray, shape: Shape, dtype?: SafetensorsDtype): TensorEntry {
  if (values.length !== sizeOf(shape)) {
    throw new ShapeError(
      `[fromValues] values do not fit the shape: expected ${sizeOf(shape)} elements for ${formatShape(shape)}, got ${values.length}`,
    );
  }
  const own = ownDtype(values);
  const stored = convert(values, own, dtype ?? own);
  return {
    dtype: dtype ?? own,
    shape: [...shape],
    bytes: new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength),
  };
}

function ownDtype(values: StorableArray): SafetensorsDtype {
  if (values instanceof Float32Array) return "F32";
  if (values instanceof Float64Array) return "F64";
  if (values instanceof Int32Array) return "I32";
  return values instanceof Uint8Array ? "U8" : "I64";
}

function convert(values: StorableArray, own: SafetensorsDtype, dtype: SafetensorsDtype): ArrayBufferView {
  if (dtype === own) return values;
  if (values instanceof Float32Array || values instanceof Float64Array) {
    if (dtype === "F16") return encodeFloat16(values);
    if (dtype === "BF16") return encodeBfloat16(values);
    if (dtype === "F32") return Float32Array.from(values);
    if (dtype === "F64") return Float64Array.from(values);
  }
  if (values instanceof Int32Array && dtype === "I64") return BigInt64Array.from(values, BigInt);
  const choices = { F32: "F64, F32, F16 or BF16", F64: "F64, F32, F16 or BF16", I32: "I32 or I64" };
  const expected = choices[own as keyof typeof choices] ?? own;
  throw new DtypeError(
    `[fromValues] values are not converted: expected ${expected} for a ${own} array, got ${dtype}`,
  );
}
