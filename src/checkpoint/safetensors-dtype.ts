/**
 * Bytes of one element, by the name of the format, in its order of alignment. Types under a byte (F4, F6) are not read.
 */
const elementBytes = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  F8_E4M3FNUZ: 1,
  F8_E5M2FNUZ: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  C64: 8,
  F64: 8,
  I64: 8,
  U64: 8,
} as const;

/** The element types of the safetensors format that whole bytes hold. */
export type SafetensorsDtype = keyof typeof elementBytes;

/** Whether a file's word names an element type that can be read. */
export function isSafetensorsDtype(word: string): word is SafetensorsDtype {
  return Object.hasOwn(elementBytes, word);
}

/** Bytes of one element. */
export function safetensorsBytes(dtype: SafetensorsDtype): number {
  return elementBytes[dtype];
}

/** The place of every element type in the format's order of alignment; writers put greater ones first. */
export function safetensorsRanks(): ReadonlyMap<string, number> {
  return new Map(Object.keys(elementBytes).map((dtype, rank) => [dtype, rank]));
}
