import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError, DtypeError, FormatError, ShapeError } from "../errors.ts";
import { sizeOf } from "../tensor/shape.ts";
import { readSafetensors, type TensorEntry, writeSafetensors } from "./safetensors.ts";
import { type SafetensorsDtype, safetensorsBytes } from "./safetensors-dtype.ts";

const golden = join(import.meta.dirname, "../../tests/golden");
const files = readdirSync(golden, { recursive: true, encoding: "utf8" }).filter((file) =>
  file.endsWith(".safetensors"),
);

function entry(dtype: SafetensorsDtype, shape: number[], fill = 7): TensorEntry {
  return { dtype, shape, bytes: new Uint8Array(sizeOf(shape) * safetensorsBytes(dtype)).fill(fill) };
}

const name = fc.string({ unit: "binary", maxLength: 12 }).filter((text) => text !== "__metadata__");
const tensor = fc
  .tuple(
    fc.constantFrom<SafetensorsDtype>("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3"),
    fc.array(fc.nat(3), { maxLength: 4 }),
    fc.nat(255),
  )
  .map(([dtype, shape, fill]) => entry(dtype, shape, fill));
const tensors = fc.uniqueArray(fc.tuple(name, tensor), { selector: ([text]) => text, maxLength: 6 });
const metadata = fc.dictionary(name, fc.string({ unit: "binary" }), { maxKeys: 4 });

test("files that the reference implementation wrote are read and written byte for byte", () => {
  assert.ok(files.length >= 53);
  for (const file of files) {
    const bytes = readFileSync(join(golden, file));
    const { tensors, metadata } = readSafetensors(bytes, { name: file });
    assert.ok(tensors.size > 0);
    assert.equal(Buffer.compare(writeSafetensors(tensors, metadata), bytes), 0, file);
  }
});

test("what was written is read, whatever the names and metadata", () => {
  fc.assert(
    fc.property(tensors, metadata, (entries, words) => {
      const file = writeSafetensors(entries, words);
      const read = readSafetensors(file);
      assert.deepEqual(Object.entries(read.metadata).sort(), Object.entries(words).sort());
      assert.equal(read.tensors.size, entries.length);
      for (const [key, { dtype, shape, bytes }] of entries) {
        const found = read.tensors.get(key)!;
        assert.deepEqual({ ...found, bytes: [...found.bytes] }, { dtype, shape, bytes: [...bytes] });
        assert.equal(found.bytes.buffer, file.buffer);
      }
    }),
  );
});

test("bytes do not depend on the order of the arguments, and every tensor is aligned", () => {
  fc.assert(
    fc.property(tensors, metadata, (entries, words) => {
      const file = writeSafetensors(entries, words);
      const reversed = Object.fromEntries(Object.entries(words).reverse());
      assert.deepEqual(writeSafetensors(new Map([...entries].reverse()), reversed), file);
      for (const { dtype, bytes } of readSafetensors(file).tensors.values()) {
        assert.equal(bytes.byteOffset % safetensorsBytes(dtype), 0);
      }
    }),
  );
});

test("a record of tensors is written like a map, its proto key too", () => {
  const record = JSON.parse('{"b":1,"__proto__":2,"a":3}') as Record<string, unknown>;
  const entries = Object.keys(record).map((key) => [key, entry("F32", [2])] as const);
  const words = JSON.parse('{"__proto__":"x"}') as Record<string, string>;
  const file = writeSafetensors(Object.fromEntries(entries), words);
  const read = readSafetensors(file);
  assert.deepEqual([...read.tensors.keys()], ["__proto__", "a", "b"]);
  assert.deepEqual(Object.entries(read.metadata), [["__proto__", "x"]]);
  assert.deepEqual(file, writeSafetensors(new Map(entries), words));
});

test("an empty file is a header of two braces", () => {
  const file = writeSafetensors({});
  assert.deepEqual([...file], [8, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20]);
  assert.deepEqual(readSafetensors(file), { metadata: {}, tensors: new Map() });
});

test("bytes at any offset and in shared memory are read", () => {
  const file = writeSafetensors({ w: entry("F64", [3]) });
  const shared = new Uint8Array(new SharedArrayBuffer(file.length + 3), 3);
  shared.set(file);
  assert.deepEqual([...readSafetensors(shared).tensors.get("w")!.bytes], new Array(24).fill(7));
});

test("tensors that cannot be written are refused by name", () => {
  const one = entry("F32", [1]);
  assert.throws(() => writeSafetensors({ w: { ...one, shape: [2] } }), {
    code: "E_SHAPE",
    message: '[safetensors] tensor "w" has data of the wrong length: expected 8 bytes for F32 [2], got 4',
  });
  assert.throws(() => writeSafetensors({ w: { ...one, shape: [-1] } }), ShapeError);
  assert.throws(() => writeSafetensors({ w: { ...one, dtype: "F4" as SafetensorsDtype } }), DtypeError);
  for (const bad of ["__metadata__", "half \ud800 pair"]) {
    assert.throws(() => writeSafetensors({ [bad]: one }), ConfigError);
  }
  assert.throws(
    () =>
      writeSafetensors([
        ["w", one],
        ["w", one],
      ]),
    ConfigError,
  );
  assert.throws(() => writeSafetensors({}, { key: 1 as unknown as string }), {
    code: "E_CONFIG",
    message: '[safetensors] metadata "key" cannot be written: expected well-formed text, got 1',
  });
});

test("a file with any bytes changed, cut or added is read or refused with FormatError", () => {
  const file = readFileSync(join(golden, "safetensors/reference.safetensors"));
  const change = fc.tuple(
    fc.nat(file.length - 1),
    fc.nat(255),
    fc.constantFrom("set", "insert", "remove", "cut"),
  );
  let refused = 0;
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
      const bytes = [...file];
      for (const [at, value, kind] of changes) {
        if (kind === "cut") bytes.length = Math.min(bytes.length, at);
        else if (kind === "set") bytes[Math.min(at, bytes.length)] = value;
        else bytes.splice(at, kind === "remove" ? 1 : 0, ...(kind === "insert" ? [value] : []));
      }
      refused += readOrRefuse(Uint8Array.from(bytes));
    }),
    { numRuns: 1000 },
  );
  assert.ok(refused > 300);
});

test("a header of any JSON is read or refused with FormatError", () => {
  const number = fc.oneof(fc.nat(20), fc.constantFrom(-1, 0.5, 1e300, 2 ** 53, 4294967296));
  const info = fc.record(
    {
      dtype: fc.oneof(fc.constantFrom("F32", "U8", "F4", "f32", ""), fc.jsonValue()),
      shape: fc.oneof(fc.array(number, { maxLength: 3 }), fc.jsonValue()),
      data_offsets: fc.oneof(fc.tuple(number, number), fc.jsonValue()),
      extra: fc.jsonValue(),
    },
    { requiredKeys: [] },
  );
  const header = fc.oneof(fc.dictionary(fc.string(), fc.oneof(info, fc.jsonValue())), fc.jsonValue());
  fc.assert(
    fc.property(header, fc.nat(40), (value, dataBytes) => {
      readOrRefuse(fileOf(JSON.stringify(value), dataBytes));
    }),
    { numRuns: 1000 },
  );
});

function fileOf(header: string, dataBytes: number): Uint8Array {
  const text = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + text.length + dataBytes);
  new DataView(file.buffer).setUint32(0, text.length, true);
  file.set(text, 8);
  return file;
}

/** 1 where the file was refused as it must be. */
function readOrRefuse(bytes: Uint8Array): number {
  try {
    readSafetensors(bytes);
    return 0;
  } catch (error) {
    assert.ok(error instanceof FormatError, `${error}`);
    assert.match(error.message, /^\[safetensors\] /);
    return 1;
  }
}
