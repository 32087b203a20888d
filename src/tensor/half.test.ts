import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeBfloat16, decodeFloat16, encodeBfloat16, encodeFloat16 } from "./half.ts";

const patterns = Uint16Array.from({ length: 65_536 }, (_, pattern) => pattern);

interface Format {
  readonly name: string;
  readonly exponentBits: number;
  readonly encode: (values: Float32Array | Float64Array) => Uint16Array;
  readonly decode: (patterns: Uint16Array) => Float32Array;
}

const formats: readonly Format[] = [
  { name: "float16", exponentBits: 5, encode: encodeFloat16, decode: decodeFloat16 },
  { name: "bfloat16", exponentBits: 8, encode: encodeBfloat16, decode: decodeBfloat16 },
];

/** The value a pattern stands for, by the definition of the format. */
function meaningOf(pattern: number, exponentBits: number): number {
  const mantissaBits = 15 - exponentBits;
  const bias = 2 ** (exponentBits - 1) - 1;
  const sign = pattern >= 0x8000 ? -1 : 1;
  const exponent = Math.floor((pattern % 0x8000) / 2 ** mantissaBits);
  const mantissa = pattern % 2 ** mantissaBits;
  if (exponent === 2 ** exponentBits - 1)
    return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  const leading = exponent === 0 ? 0 : 2 ** mantissaBits;
  return sign * (leading + mantissa) * 2 ** (Math.max(exponent, 1) - bias - mantissaBits);
}

for (const { name, exponentBits, encode, decode } of formats) {
  const infinity = ((2 ** exponentBits - 1) << (15 - exponentBits)) | 0;

  test(`${name} decodes all 65536 patterns to the value of the definition`, () => {
    const values = decode(patterns);
    for (const pattern of patterns) {
      const expected = meaningOf(pattern, exponentBits);
      assert.ok(Object.is(values[pattern], expected), `${pattern}: ${values[pattern]} for ${expected}`);
    }
  });

  test(`${name} encodes every decoded value back to its pattern`, () => {
    const again = encode(decode(patterns));
    const wide = encode(Float64Array.from(decode(patterns)));
    for (const pattern of patterns) {
      if ((pattern & 0x7fff) > infinity) {
        assert.ok(
          (again[pattern]! & 0x7fff) > infinity && (wide[pattern]! & 0x7fff) > infinity,
          `${pattern}`,
        );
        assert.equal(again[pattern]! & 0x8000, pattern & 0x8000);
      } else {
        assert.equal(again[pattern], pattern);
        assert.equal(wide[pattern], pattern);
      }
    }
  });

  test(`${name} rounds between every two neighbours to nearest even`, () => {
    const count = infinity;
    const middles = new Float32Array(count);
    for (let pattern = 0; pattern < count; pattern++) {
      const low = meaningOf(pattern, exponentBits);
      const step =
        pattern + 1 < infinity
          ? meaningOf(pattern + 1, exponentBits) - low
          : low - meaningOf(pattern - 1, exponentBits);
      middles[pattern] = low + step / 2;
      assert.equal(middles[pattern], low + step / 2, "middles are float32");
    }
    const bits = new Uint32Array(middles.buffer);
    const below = new Float32Array(bits.map((word) => word - 1).buffer);
    const above = new Float32Array(bits.map((word) => word + 1).buffer);
    for (const sign of [1, -1]) {
      const flag = sign < 0 ? 0x8000 : 0;
      const signed = (values: Float32Array) => encode(values.map((value) => sign * value));
      const [atMiddle, underMiddle, overMiddle] = [signed(middles), signed(below), signed(above)];
      for (let pattern = 0; pattern < count; pattern++) {
        assert.equal(atMiddle[pattern], flag | (pattern + (pattern % 2)), `middle after ${pattern}`);
        assert.equal(underMiddle[pattern], flag | pattern, `below the middle after ${pattern}`);
        assert.equal(overMiddle[pattern], flag | (pattern + 1), `above the middle after ${pattern}`);
      }
    }
  });

  test(`${name} rounds float64 values once, not by way of float32`, () => {
    for (let pattern = 1; pattern + 1 < infinity; pattern++) {
      const low = meaningOf(pattern, exponentBits);
      const middle = (low + meaningOf(pattern + 1, exponentBits)) / 2;
      const nudge = middle * 2 ** -50;
      const [under, over] = encode(Float64Array.of(-(middle - nudge), middle + nudge));
      assert.equal(under, 0x8000 | pattern);
      assert.equal(over, pattern + 1);
    }
  });

  test(`${name} keeps extremes of float64`, () => {
    const encoded = encode(Float64Array.of(1e300, -1e300, 1e-300, -1e-300, Number.NaN, -0));
    assert.deepEqual([...encoded.slice(0, 4)], [infinity, 0x8000 | infinity, 0, 0x8000]);
    assert.ok((encoded[4]! & 0x7fff) > infinity);
    assert.equal(encoded[5], 0x8000);
  });

  test(`${name} keeps every payload a NaN`, () => {
    const bits = new Uint32Array(2 * 23 + 2);
    for (let bit = 0; bit < 23; bit++) {
      bits[2 * bit] = 0x7f800000 | (1 << bit);
      bits[2 * bit + 1] = 0xff800000 | (1 << bit);
    }
    bits[46] = 0x7fffffff;
    bits[47] = 0xffffffff;
    encode(new Float32Array(bits.buffer)).forEach((pattern, i) => {
      assert.ok((pattern & 0x7fff) > infinity, `NaN ${i}`);
      assert.equal(pattern >= 0x8000, i % 2 === 1);
    });
  });
}

test("conversions write into the array they are given", () => {
  const target = new Uint16Array(3);
  assert.equal(encodeFloat16(Float32Array.of(1, 2), target), target);
  assert.deepEqual([...target], [0x3c00, 0x4000, 0]);
  const padded = new Float32Array(4).subarray(1);
  assert.equal(decodeBfloat16(Uint16Array.of(0x3f80), padded), padded);
  assert.equal(padded[0], 1);
});

test("a target that is too short is refused", () => {
  const one = new Float32Array(1);
  assert.throws(() => encodeFloat16(new Float32Array(2), new Uint16Array(1)), {
    message: "[encodeFloat16] target is too short: expected at least 2 elements, got 1",
  });
  assert.throws(() => encodeBfloat16(new Float32Array(2), new Uint16Array(1)), { code: "E_SHAPE" });
  assert.throws(() => decodeFloat16(new Uint16Array(2), one), { code: "E_SHAPE" });
  assert.throws(() => decodeBfloat16(new Uint16Array(2), one), { code: "E_SHAPE" });
});
