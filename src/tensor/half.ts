import { ShapeError } from "../errors.ts";

type Floats = Float32Array | Float64Array;

function checkTarget(who: string, source: ArrayLike<number>, target: ArrayLike<number>): void {
  if (target.length < source.length) {
    throw new ShapeError(
      `[${who}] target is too short: expected at least ${source.length} elements, got ${target.length}`,
    );
  }
}

/** Bits of float32 values; a wider value keeps, in its lowest bit, that it was between two of them. */
function bitsOf(values: Floats): Uint32Array {
  if (values instanceof Float32Array) return bitsView(values);
  const rounded = Float32Array.from(values);
  const bits = bitsView(rounded);
  for (let i = 0; i < bits.length; i++) {
    const single = rounded[i]!;
    const value = values[i]!;
    // cut toward zero with a sticky bit, so that rounding once more does not round twice
    if (single !== value && !Number.isNaN(single))
      bits[i] = (bits[i]! - +(Math.abs(single) > Math.abs(value))) | 1;
  }
  return bits;
}

function bitsView(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length);
}

/**
 * IEEE 754 binary16 patterns of float32 or float64 values, rounded once to nearest even.
 *
 * From 65,520 on a value becomes infinite, down to 2^-25 included it becomes zero; a NaN stays one, quiet, with the
 * upper bits of its payload.
 */
export function encodeFloat16(
  values: Floats,
  target: Uint16Array = new Uint16Array(values.length),
): Uint16Array {
  checkTarget("encodeFloat16", values, target);
  const bits = bitsOf(values);
  for (let i = 0; i < bits.length; i++) {
    const word = bits[i]!;
    const sign = (word >>> 16) & 0x8000;
    const magnitude = word & 0x7fffffff;
    let half: number;
    if (magnitude >= 0x38800000 && magnitude < 0x47800000) {
      half = (magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13;
    } else if (magnitude < 0x38800000) {
      half = subnormalHalf(magnitude);
    } else {
      half = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >>> 13) & 0x3ff) : 0x7c00;
    }
    target[i] = sign | half;
  }
  return target;
}

/** Float32 magnitudes under 2^-14 counted in units of 2^-24. */
function subnormalHalf(magnitude: number): number {
  const shift = 126 - (magnitude >>> 23);
  if (shift > 24) return 0;
  const mantissa = (magnitude & 0x7fffff) | 0x800000;
  const half = mantissa >>> shift;
  return (mantissa + (1 << (shift - 1)) - 1 + (half & 1)) >>> shift;
}

/** Float32 values of IEEE 754 binary16 patterns; exact, and a NaN keeps its payload. */
export function decodeFloat16(
  patterns: Uint16Array,
  target: Float32Array = new Float32Array(patterns.length),
): Float32Array {
  checkTarget("decodeFloat16", patterns, target);
  const bits = bitsView(target);
  for (let i = 0; i < patterns.length; i++) {
    const pattern = patterns[i]!;
    const sign = (pattern & 0x8000) << 16;
    const magnitude = (pattern & 0x7fff) << 13;
    if (magnitude >= 0x0f800000) {
      bits[i] = sign | 0x7f800000 | magnitude;
    } else if (magnitude >= 0x00800000) {
      bits[i] = sign | (magnitude + 0x38000000);
    } else {
      target[i] = (sign < 0 ? -(pattern & 0x3ff) : pattern) * 2 ** -24;
    }
  }
  return target;
}

/** bfloat16 patterns of float32 or float64 values, rounded once to nearest even; a NaN stays one, quiet. */
export function encodeBfloat16(
  values: Floats,
  target: Uint16Array = new Uint16Array(values.length),
): Uint16Array {
  checkTarget("encodeBfloat16", values, target);
  const bits = bitsOf(values);
  for (let i = 0; i < bits.length; i++) {
    const word = bits[i]!;
    const carriesPayload = (word & 0x7fffffff) > 0x7f800000;
    target[i] = carriesPayload ? (word >>> 16) | 0x40 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return target;
}

/** Float32 values of bfloat16 patterns; exact, and a NaN keeps its payload. */
export function decodeBfloat16(
  patterns: Uint16Array,
  target: Float32Array = new Float32Array(patterns.length),
): Float32Array {
  checkTarget("decodeBfloat16", patterns, target);
  const bits = bitsView(target);
  for (let i = 0; i < patterns.length; i++) bits[i] = patterns[i]! << 16;
  return target;
}
