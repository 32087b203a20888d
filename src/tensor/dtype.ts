/** Number types a tensor may have. Devices compute in float32 or float64; indices are int32. */
export type DType = "float32" | "float64" | "int32" | "uint8";

/** The typed array that holds a dtype in JavaScript. */
export type TypedArray = Float32Array | Float64Array | Int32Array | Uint8Array;

const arrays = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  uint8: Uint8Array,
} as const;

/** Whether a value names a dtype that tensors may have. */
export function isDType(value: unknown): value is DType {
  return typeof value === "string" && Object.hasOwn(arrays, value);
}

/** Bytes of one element. */
export function bytesPerElement(dtype: DType): number {
  return arrays[dtype].BYTES_PER_ELEMENT;
}

/** A zeroed typed array for a dtype. */
export function allocateArray(dtype: DType, length: number): TypedArray {
  return new arrays[dtype](length);
}

/** The dtype that a typed array holds. */
export function dtypeOf(array: TypedArray): DType {
  if (array instanceof Float32Array) return "float32";
  if (array instanceof Float64Array) return "float64";
  return array instanceof Int32Array ? "int32" : "uint8";
}
