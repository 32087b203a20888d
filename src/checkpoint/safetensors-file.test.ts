import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { DisposedError, FormatError, ShapeError, UnsupportedError } from "../errors.ts";
import { type TensorSource, writeSafetensors } from "./safetensors.ts";
import { openHandle, openSafetensors, saveSafetensors } from "./safetensors-file.ts";
import { fromValues } from "./safetensors-values.ts";

let folder = "";
const at = (name: string) => join(folder, name);
const tensors = {
  a: fromValues(Float32Array.of(1, 2, 3, 4), [2, 2]),
  b: fromValues(Float64Array.of(5), []),
  c: fromValues(Uint8Array.of(6, 7, 8), [3]),
};
const metadata = { format: "pt" };

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "linnet-safetensors-"));
});
after(() => rm(folder, { recursive: true }));

test("a saved file has the bytes of the file in memory, and nothing is left beside it", async () => {
  await saveSafetensors(at("model.safetensors"), tensors, metadata);
  assert.deepEqual(
    new Uint8Array(await readFile(at("model.safetensors"))),
    writeSafetensors(tensors, metadata),
  );
  assert.deepEqual(await readdir(folder), ["model.safetensors"]);
});

test("tensors are read one by one from an open file", async () => {
  await saveSafetensors(at("model.safetensors"), tensors, metadata);
  const file = await openSafetensors(at("model.safetensors"));
  assert.deepEqual(file.metadata, metadata);
  assert.deepEqual([...file.tensors.keys()], ["b", "a", "c"]);
  for (const [name, expected] of Object.entries(tensors)) assert.deepEqual(await file.read(name), expected);
  const target = new Uint8Array(16);
  assert.equal((await file.read("a", { target })).bytes, target);
  assert.deepEqual(target, tensors.a.bytes);
  await assert.rejects(file.read("a", { target: new Uint8Array(15) }), ShapeError);
  await assert.rejects(file.read("d"), {
    code: "E_FORMAT",
    message: `[safetensors] ${file.name} has no tensor "d": expected one of its 3, such as "b", "a", "c"`,
  });
  await file.close();
  await file.close();
  await assert.rejects(file.read("a"), DisposedError);
});

test("a piece is read into several targets, however little of it each call gives", async () => {
  await saveSafetensors(at("model.safetensors"), tensors, metadata);
  const bytes = new Uint8Array(await readFile(at("model.safetensors")));
  const lengths = [3, 0, 8, 1, 10];
  for (const most of [1, 4, 11, 100]) {
    const handle = {
      read: async (target: Uint8Array, offset: number, length: number, position: number) => {
        const piece = bytes.subarray(position, position + Math.min(most, length));
        target.set(piece, offset);
        return { bytesRead: piece.length };
      },
      readv: async (targets: readonly Uint8Array[], position: number) => {
        let bytesRead = 0;
        for (const target of targets) {
          const from = position + bytesRead;
          const piece = bytes.subarray(from, from + Math.min(target.length, most - bytesRead));
          target.set(piece);
          bytesRead += piece.length;
        }
        return { bytesRead };
      },
      close: async () => {},
    };
    const { readv: _, ...plain } = handle;
    for (const reading of [handle, plain]) {
      const file = await openHandle("model", reading, bytes.length);
      const targets = lengths.map((length) => new Uint8Array(length));
      await file.readPiece(2, targets);
      assert.deepEqual(Buffer.concat(targets), Buffer.from(bytes.subarray(-27 + 2, -27 + 24)));
      await assert.rejects(file.readPiece(6, targets), { code: "E_FORMAT", message: /expected 22 bytes/ });
    }
  }
});

test("sources are asked for their bytes one after the other, once each", async () => {
  const calls: string[] = [];
  const lazy = Object.fromEntries(
    Object.entries(tensors).map(([name, { bytes, ...rest }]): [string, TensorSource] => {
      const make = () => {
        calls.push(name);
        return name === "a" ? Promise.resolve(bytes) : bytes;
      };
      return [name, { ...rest, bytes: make }];
    }),
  );
  await saveSafetensors(at("lazy.safetensors"), lazy, metadata);
  assert.deepEqual(calls, ["b", "a", "c"]);
  assert.deepEqual(
    new Uint8Array(await readFile(at("lazy.safetensors"))),
    writeSafetensors(tensors, metadata),
  );
});

test("a save that fails or is aborted leaves the old file and nothing else", async () => {
  await rm(folder, { recursive: true });
  folder = await mkdtemp(join(tmpdir(), "linnet-safetensors-"));
  await saveSafetensors(at("m.safetensors"), tensors);
  const old = await readFile(at("m.safetensors"));
  const controller = new AbortController();
  const failing = (bytes: () => Uint8Array): Record<string, TensorSource> => ({
    a: tensors.a,
    b: { dtype: "F32", shape: [1], bytes },
  });
  const fault = new Error("readback failed");
  const short = failing(() => new Uint8Array(3));
  const throwing = failing(() => {
    throw fault;
  });
  const aborting = failing(() => {
    controller.abort();
    return new Uint8Array(4);
  });
  await assert.rejects(saveSafetensors(at("m.safetensors"), short), {
    code: "E_SHAPE",
    message: '[saveSafetensors] bytes of "b" have the wrong length: expected 4, got 3',
  });
  await assert.rejects(saveSafetensors(at("m.safetensors"), throwing), fault);
  await assert.rejects(saveSafetensors(at("m.safetensors"), aborting, {}, { signal: controller.signal }), {
    name: "AbortError",
  });
  assert.deepEqual(await readFile(at("m.safetensors")), old);
  assert.deepEqual(await readdir(folder), ["m.safetensors"]);
});

test("what the system refuses is an error with its code", async () => {
  await assert.rejects(saveSafetensors(at("missing/m.safetensors"), tensors), (error: Error) => {
    assert.ok(error instanceof FormatError);
    assert.match(error.message, /missing\/m\.safetensors cannot be written: ENOENT/);
    return true;
  });
  await assert.rejects(
    openSafetensors(at("nothing.safetensors")),
    /nothing\.safetensors cannot be opened: ENOENT/,
  );
  await assert.rejects(openSafetensors(folder), /cannot be opened: expected a plain file/);
});

test("a pipe is refused without waiting for its writer", { skip: process.platform === "win32" }, async () => {
  execFileSync("mkfifo", [at("pipe")]);
  await assert.rejects(openSafetensors(at("pipe")), FormatError);
});

test("truncated files are refused at every length", async () => {
  const whole = writeSafetensors(tensors, metadata);
  for (let length = 0; length < whole.length; length += 5) {
    await writeFile(at("cut.safetensors"), whole.subarray(0, length));
    await assert.rejects(openSafetensors(at("cut.safetensors")), (error: Error) => {
      assert.ok(error instanceof FormatError);
      assert.ok(error.message.includes("cut.safetensors"));
      return true;
    });
  }
});

test("a file that shrinks while it is open is refused", async () => {
  await saveSafetensors(at("shrinks.safetensors"), tensors);
  const file = await openSafetensors(at("shrinks.safetensors"));
  await truncate(at("shrinks.safetensors"), writeSafetensors(tensors).length - 2);
  await assert.rejects(file.read("c"), /shrank since it was opened: expected 3 bytes of "c", got 1/);
  await file.close();
});

test("without Node both are refused", async () => {
  const { process } = globalThis;
  Object.defineProperty(globalThis, "process", { value: undefined, configurable: true, writable: true });
  try {
    await assert.rejects(openSafetensors("x"), UnsupportedError);
    await assert.rejects(saveSafetensors("x", {}), UnsupportedError);
  } finally {
    Object.defineProperty(globalThis, "process", { value: process, configurable: true, writable: true });
  }
});

test("an aborted signal stops opening and reading", async () => {
  await saveSafetensors(at("abort.safetensors"), tensors);
  const signal = AbortSignal.abort(new Error("enough"));
  await assert.rejects(openSafetensors(at("abort.safetensors"), { signal }), /enough/);
  const file = await openSafetensors(at("abort.safetensors"));
  await assert.rejects(file.read("a", { signal }), /enough/);
  await file.close();
});
