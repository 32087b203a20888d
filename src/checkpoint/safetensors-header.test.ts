import assert from "node:assert/strict";
import { test } from "node:test";
import { FormatError } from "../errors.ts";
import { headerLength, parseHeader } from "./safetensors-header.ts";

const encode = (text: string) => new TextEncoder().encode(text);

function prefix(length: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, length, true);
  return bytes;
}

function refused(header: string, message: string, dataBytes?: number): void {
  assert.throws(
    () => parseHeader(encode(header), "model.safetensors", dataBytes),
    (error: Error) => {
      assert.ok(error instanceof FormatError, `${error}`);
      assert.equal(error.message, `[safetensors] ${message}`);
      return true;
    },
  );
}

const w = '"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}';

test("a header tells where every tensor lies", () => {
  const text = `{"__metadata__":{"format":"pt"},${w}, "s" : {"data_offsets": [24, 25],\n"shape":[],\t"dtype":"U8"}}  `;
  assert.deepEqual(parseHeader(encode(text), "f", 25), {
    metadata: { format: "pt" },
    tensors: new Map([
      ["w", { dtype: "F32", shape: [2, 3], begin: 0, end: 24 }],
      ["s", { dtype: "U8", shape: [], begin: 24, end: 25 }],
    ]),
    dataBytes: 25,
  });
});

test("tensors may be named in another order than their data has, and be empty or not aligned", () => {
  const text =
    '{"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"e":{"dtype":"F32","shape":[9,0],"data_offsets":[1,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}';
  assert.deepEqual([...parseHeader(encode(text), "f", 5).tensors.keys()], ["b", "e", "a"]);
});

test("keys with escapes are read, and keep two that differ apart", () => {
  const text = '{"__metadata__":{"\\\\":"\\"","\\u00e9\\ud83d\\ude00":"\\n"}}';
  assert.deepEqual(parseHeader(encode(text), "f").metadata, { "\\": '"', "é😀": "\n" });
});

test("the length of a header is checked", () => {
  assert.equal(headerLength(prefix(60n), "f"), 60);
  assert.equal(headerLength(prefix(100_000_000n), "f", 100_000_008), 100_000_000);
  const cases: [Uint8Array, number | undefined, string][] = [
    [new Uint8Array(7), 7, "f is too short: expected 8 bytes that tell the header's length, got 7"],
    [prefix(60n), 67, "f ends inside its header: expected 68 bytes or more, got 67"],
  ];
  for (const [start, fileBytes, message] of cases) {
    assert.throws(() => headerLength(start, "f", fileBytes), {
      code: "E_FORMAT",
      message: `[safetensors] ${message}`,
    });
  }
  for (const length of [0n, 1n, 100_000_001n, 2n ** 32n + 60n, 2n ** 64n - 1n]) {
    assert.throws(
      () => headerLength(prefix(length), "f"),
      /no credible length: expected 2 to 100000000 bytes, got \d+/,
    );
  }
});

test("data of the wrong length is refused", () => {
  refused(`{${w}}`, "model.safetensors ends inside its data: expected 24 bytes after the header, got 23", 23);
  refused(
    `{${w}}`,
    "model.safetensors goes on after its data: expected 24 bytes after the header, got 25",
    25,
  );
});

test("claims about a tensor that do not agree are refused", () => {
  const claim = (dtype: string, shape: string, offsets: string) =>
    `{"w":{"dtype":"${dtype}","shape":${shape},"data_offsets":${offsets}}}`;
  const who = 'tensor "w" of model.safetensors';
  refused(
    claim("F32", "[2,3]", "[0,20]"),
    `${who} has data of the wrong length: expected 24 bytes for F32 [2, 3], got 20 from 0 to 20`,
  );
  refused(claim("F32", "[1]", "[4,0]"), `${who} has no data_offsets: expected [begin, end], got [4, 0]`);
  for (const offsets of ["[]", "[0]", "[0,4,8]"]) {
    refused(
      claim("F32", "[1]", offsets),
      `${who} has no data_offsets: expected [begin, end], got ${offsets.replaceAll(",", ", ")}`,
    );
  }
  for (const dtype of ["F4", "f32", "toString", ""]) {
    refused(
      claim(dtype, "[1]", "[0,4]"),
      `${who} has a dtype that is not read: expected one of whole bytes such as F32 or BF16, got "${dtype}"`,
    );
  }
  refused(
    claim("F32", "[4294967296,4294967296,0]", "[0,0]"),
    `${who} is too large: expected fewer than 2^53 bytes, got F32 [4294967296, 4294967296, 0]`,
  );
});

test("holes and overlaps are refused", () => {
  const two = (a: string, b: string) =>
    `{"a":{"dtype":"U8","shape":[4],"data_offsets":${a}},"b":{"dtype":"U8","shape":[4],"data_offsets":${b}}}`;
  const message = (name: string, what: string, from: number, got: number) =>
    `tensor "${name}" of model.safetensors ${what}: expected data from byte ${from} on, got ${got}`;
  refused(two("[0,4]", "[5,9]"), message("b", "leaves a hole", 4, 5));
  refused(two("[1,5]", "[5,9]"), message("a", "leaves a hole", 0, 1));
  refused(two("[0,4]", "[3,7]"), message("b", "overlaps another", 4, 3));
  refused(two("[0,4]", "[0,4]"), message("b", "overlaps another", 4, 0));
});

test("JSON that the format does not allow is refused with its place", () => {
  const place = (at: number, expected: string, got: string) =>
    `the header of model.safetensors breaks off from the format at character ${at}: expected ${expected}, got ${got}`;
  const whole = "a whole number from 0 to 2^53 - 1";
  refused(` {${w}}`, place(0, "{ at the very beginning", JSON.stringify(` {${w}}`.slice(0, 24))));
  refused(`\ufeff{${w}}`, place(0, "{ at the very beginning", JSON.stringify(`\ufeff{${w}}`.slice(0, 24))));
  refused(`{${w}`, place(w.length + 1, "}", "the end of the header"));
  refused(`{${w}}x`, place(w.length + 2, "nothing but blanks after the closing brace", '"x"'));
  refused(`{${w},}`, place(w.length + 2, "a key", '"}"'));
  refused(
    `{${w},${w}}`,
    place(w.length + 6, 'each tensor once, not "w" again', '"{\\"dtype\\":\\"F32\\",\\"shape\\":["'),
  );
  refused('{"w":[[[[[', place(5, "{", '"[[[[["'));
  refused('{"w":{"shape":[[1]]}}', place(15, whole, '"[1]]}}"'));
  for (const number of [
    "-1",
    "1.5",
    "1e2",
    "01",
    "9007199254740992",
    "99999999999999999999",
    "1".repeat(400),
    "NaN",
    '"1"',
    "null",
  ]) {
    assert.throws(
      () => parseHeader(encode(`{"w":{"shape":[${number}]}}`), "f"),
      /expected a whole number from 0 to 2\^53 - 1/,
    );
  }
  refused(
    '{"w":{"dtype":"F32","dtype":"F32"}}',
    place(28, 'dtype, shape and data_offsets once each for "w", not "dtype"', '"\\"F32\\"}}"'),
  );
  refused(
    '{"w":{"strides":[]}}',
    place(16, 'dtype, shape and data_offsets once each for "w", not "strides"', '"[]}}"'),
  );
  refused('{"w":{"dtype":"F32"}}', place(20, 'dtype, shape and data_offsets for "w"', '"}"'));
  refused('{"__metadata__":{"a":1}}', place(21, "a string", '"1}}"'));
  refused(
    '{"__metadata__":{"a":"1","a":"2"}}',
    place(29, 'each key of __metadata__ once, not "a" again', '"\\"2\\"}}"'),
  );
  refused('{"__metadata__":{},"__metadata__":{}}', place(34, "__metadata__ once", '"{}}"'));
  refused('{"w', place(1, "a key that ends", '"\\"w"'));
  refused('{"w\\"', place(1, "a key that ends", '"\\"w\\\\\\""'));
  refused('{"\\x":{}}', place(1, "a key in well-formed JSON", '"\\"\\\\x\\":{}}"'));
  refused('{"\\ud800":{}}', place(1, "a key in well-formed JSON", '"\\"\\\\ud800\\":{}}"'));
});

test("bytes that are no UTF-8 are refused", () => {
  assert.throws(() => parseHeader(Uint8Array.of(0x7b, 0xff, 0x7d), "f"), {
    code: "E_FORMAT",
    message: "[safetensors] the header of f is no text: expected UTF-8",
  });
});

test("long and deep headers are refused in linear time", () => {
  const megabyte = 2 ** 20;
  for (const text of [
    "[".repeat(megabyte),
    `{"w":${"[".repeat(megabyte)}`,
    `{"${"\\".repeat(megabyte)}`,
    `{"${'\\"'.repeat(megabyte / 2)}`,
    `{"w":{"shape":[${"1,".repeat(megabyte / 2)}`,
    `{"w":{"shape":[${"1".repeat(megabyte)}]}}`,
    `{${" ".repeat(megabyte)}`,
  ]) {
    const start = process.cpuUsage(); // of this process alone, whatever else the machine does
    assert.throws(() => parseHeader(encode(text), "f"), FormatError);
    assert.ok(process.cpuUsage(start).user < 2_000_000);
  }
});
