import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { DtypeError, NumericsError, ShapeError } from "../errors.ts";
import { readSafetensors, type TensorEntry } from "./safetensors.ts";
import type { SafetensorsDtype } from "./safetensors-dtype.ts";
import { fromValues, toFloat32, toFloat64, toInt32 } from "./safetensors-values.ts";

const path = join(import.meta.dirname, "../../tests/golden/safetensors/reference.safetensors");
const { tensors } = readSafetensors(readFileSync(path), { name: path });
const reference = (name: string) => tensors.get(name)!;

/** The same bytes where no wider element is aligned. */
function misaligned(entry: TensorEntry): TensorEntry {
  const bytes = new Uint8Array(entry.bytes.length + 1).subarray(1);
  bytes.set(entry.bytes);
  return { ...entry, bytes };
}

const floats = [
  ["z.f32", Float64Array.from({ length: 6 }, (_, i) => Math.fround(i / Math.fround(3)))],
  ["a.f64", Float64Array.of(1 / 3, -2)],
  ["d.f16", Float64Array.of(1, -2, 65504)],
  ["e.bf16", Float64Array.of(1, -2)],
  ["i.scalar", Float64Array.of(2.5)],
  ["h.empty", new Float64Array(0)],
  ["c.i32", Float64Array.of(-1, 0, 7)],
  ["b.i64", Float64Array.of(2 ** 53)],
  ["f.u8", Float64Array.of(0, 1, 2, 254, 255)],
  ["g.bool", Float64Array.of(0, 1)],
] as const;

test("every dtype of the reference file converts to floats, aligned or not, with and without a target", () => {
  for (const [name, expected] of floats) {
    for (const entry of [reference(name), misaligned(reference(name))]) {
      assert.deepEqual(toFloat64(entry), expected, name);
      assert.deepEqual(toFloat32(entry), Float32Array.from(expected), name);
      const wide = new Float64Array(expected.length);
      assert.equal(toFloat64(entry, wide), wide);
      assert.deepEqual(wide, expected);
      const single = new Float32Array(expected.length);
      assert.equal(toFloat32(entry, single), single);
      assert.deepEqual(single, Float32Array.from(expected));
    }
  }
});

test("aligned floats come back without a copy", () => {
  const entry = fromValues(Float32Array.of(1, 2), [2]);
  assert.equal(toFloat32(entry).buffer, entry.bytes.buffer);
  assert.notEqual(toFloat32(entry, new Float32Array(2)).buffer, entry.bytes.buffer);
});

test("integers convert to int32 where they fit", () => {
  assert.deepEqual(toInt32(reference("c.i32")), Int32Array.of(-1, 0, 7));
  assert.deepEqual(toInt32(reference("f.u8")), Int32Array.of(0, 1, 2, 254, 255));
  assert.deepEqual(toInt32(fromValues(Int32Array.of(-5, 6), [2], "I64")), Int32Array.of(-5, 6));
  assert.throws(() => toInt32(reference("b.i64")), {
    code: "E_NUMERICS",
    message: "[toInt32] element 0 does not fit: expected -2^31 to 2^31 - 1, got 9007199254740993",
  });
  const unsigned: TensorEntry = { dtype: "U32", shape: [1], bytes: new Uint8Array(4).fill(255) };
  assert.throws(() => toInt32(unsigned), NumericsError);
  for (const name of ["z.f32", "a.f64", "d.f16", "e.bf16"])
    assert.throws(() => toInt32(reference(name)), DtypeError);
});

test("arrays become entries of their dtype, or of a narrower one rounded once", () => {
  const own = [Float32Array, Float64Array, Int32Array, Uint8Array].map(
    (A) => fromValues(new A(2), [2]).dtype,
  );
  assert.deepEqual(own, ["F32", "F64", "I32", "U8"]);
  assert.equal(fromValues(new BigInt64Array(1), []).dtype, "I64");
  const wide = Float64Array.of(1 + 2 ** -11 + 2 ** -40, 1 / 3);
  assert.deepEqual(toFloat64(fromValues(wide, [2], "F16")), Float64Array.of(1 + 2 ** -10, 0.333251953125));
  assert.deepEqual(toFloat64(fromValues(wide, [2], "BF16")), Float64Array.of(1, 0.333984375));
  assert.deepEqual(toFloat64(fromValues(wide, [2], "F32")), Float64Array.from(wide, Math.fround));
  assert.deepEqual(toFloat64(fromValues(Float32Array.of(0.5), [1], "F64")), Float64Array.of(0.5));
  assert.deepEqual(
    fromValues(Float32Array.of(1, -2, 65504), [3], "F16").bytes,
    new Uint8Array(reference("d.f16").bytes),
  );
});

test("conversions that lose or invent meaning are refused", () => {
  assert.throws(() => fromValues(new Float32Array(3), [2]), ShapeError);
  assert.throws(() => fromValues(new Float32Array(2), [2], "I32"), {
    code: "E_DTYPE",
    message: "[fromValues] values are not converted: expected F64, F32, F16 or BF16 for a F32 array, got I32",
  });
  assert.throws(() => fromValues(new Int32Array(2), [2], "F32"), DtypeError);
  assert.throws(() => fromValues(new Uint8Array(2), [2], "BOOL"), DtypeError);
  for (const dtype of ["F8_E4M3", "C64"] as SafetensorsDtype[]) {
    const entry = { dtype, shape: [1], bytes: new Uint8Array(8) };
    for (const convert of [toFloat32, toFloat64, toInt32]) assert.throws(() => convert(entry), DtypeError);
  }
  assert.throws(() => toFloat32(reference("z.f32"), new Float32Array(5)), {
    code: "E_SHAPE",
    message: "[toFloat32] target has the wrong length: expected 6 elements, got 5",
  });
});
