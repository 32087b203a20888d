import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { Random } from "../tensor/random.ts";
import { evaluationWindows, randomWindows } from "./batches.ts";
import { bytePair } from "./byte-pair.ts";
import { trainBytePair } from "./byte-pair-train.ts";
import { bytes } from "./bytes.ts";
import { characters } from "./characters.ts";
import { readDocuments, readText, safeCut, type TextPiece } from "./corpus.ts";
import { documentRows, documentsOf, packedDocuments } from "./document-batches.ts";
import { holdOut, readLabelled } from "./labelled.ts";
import { openTokens, writeTokens } from "./token-file.ts";

async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "linnet-corpus-"));
  try {
    await run(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function all(documents: AsyncIterable<TextPiece>): Promise<TextPiece[]> {
  const found: TextPiece[] = [];
  for await (const piece of documents) found.push(piece);
  return found;
}

test("a folder is read file by file in the order of names, json lines document by document", () =>
  inFolder(async (folder) => {
    await mkdir(join(folder, "b"));
    await writeFile(join(folder, "b", "two.txt"), "zwei 🐋");
    await writeFile(join(folder, "a.txt"), "one");
    await writeFile(join(folder, ".hidden"), "\0");
    await writeFile(join(folder, "c.jsonl"), '{"text":"three"}\n\n{"text":"four\\nlines","more":1}');
    const found = await all(readDocuments(folder));
    assert.deepEqual(
      found.map(({ text }) => text),
      ["one", "zwei 🐋", "three", "four\nlines"],
    );
    assert.match(found[3]!.name, /c\.jsonl:3$/);
    assert.equal(await readText(folder), "one\nzwei 🐋\nthree\nfour\nlines");
    await assert.rejects(readText(folder, 10), { code: "E_FORMAT", message: /too large to be read at once/ });
  }));

test("files that are missing, empty, binary or broken are named with what was expected", () =>
  inFolder(async (folder) => {
    const file = (name: string): string => join(folder, name);
    await writeFile(file("empty.txt"), "");
    await writeFile(file("blank.txt"), " \n ");
    await writeFile(file("binary"), Uint8Array.of(80, 75, 0, 4));
    await writeFile(file("bad.jsonl"), '{"text":"a"}\n{"text":\n');
    await writeFile(file("other.jsonl"), '{"content":"a"}\n');
    await mkdir(file("nothing"));
    const cases = [
      ["missing", "E_CONFIG", /there is no file or folder/],
      ["empty.txt", "E_FORMAT", /empty\.txt is empty/],
      ["blank.txt", "E_FORMAT", /holds no text/],
      ["binary", "E_FORMAT", /is binary: expected text in UTF-8/],
      ["bad.jsonl", "E_FORMAT", /line 2 of .*bad\.jsonl is not JSON/],
      ["other.jsonl", "E_FORMAT", /line 1 of .*other\.jsonl has no field "text"/],
      ["nothing", "E_FORMAT", /nothing holds no files/],
    ] as const;
    for (const [name, code, message] of cases)
      await assert.rejects(readText(file(name)), { code, message }, name);
  }));

test("pieces of a text have the tokens of the whole", () => {
  const sample = "it's the white whale,  the\n\n\twhale 1234567 — das weiße Wal\n \n the end ";
  const tokenizer = bytePair(trainBytePair([sample.repeat(3)], 300));
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom(...sample.split(/(?<=[ \n])/), "\n", " ", "🐋", "x"), { maxLength: 40 }),
      fc.integer({ min: 8, max: 40 }),
      (words, length) => {
        const text = words.join("");
        const parts: string[] = [];
        let rest = text;
        for (let cut = safeCut(rest, length); cut > 0; cut = safeCut(rest, length)) {
          // A word longer than a piece is cut anywhere, which no tokenizer can undo.
          if (!/\s/.test(rest[cut]!)) return;
          parts.push(rest.slice(0, cut));
          rest = rest.slice(cut);
        }
        parts.push(rest);
        assert.deepEqual(
          parts.flatMap((part) => [...tokenizer.encode(part)]),
          [...tokenizer.encode(text)],
        );
      },
    ),
  );
});

test("a token file larger than its pieces gives the windows of the same ids in memory", () =>
  inFolder(async (folder) => {
    const text = "the whale and the sea, the ship and the white whale. ".repeat(400);
    await writeFile(join(folder, "a.txt"), text);
    await writeFile(join(folder, "b.txt"), "short");
    for (const tokenizer of [bytes(), bytePair(trainBytePair([text], 300)), characters(`${text}short`)]) {
      const path = join(folder, "tokens.bin.out");
      const pieces = [join(folder, "a.txt"), join(folder, "b.txt")].map((file) =>
        readDocuments(file, { pieceLength: 500 }),
      );
      const written = await writeTokens(
        path,
        (async function* () {
          for (const part of pieces) yield* part;
        })(),
        tokenizer,
      );
      const parting = tokenizer.separator === undefined ? [] : [tokenizer.separator];
      const ids = Int32Array.from([...tokenizer.encode(text), ...parting, ...tokenizer.encode("short")]);
      const file = await openTokens(path);
      assert.deepEqual([file.length, file.documents, file.textBytes], [ids.length, 2, text.length + 5]);
      assert.deepEqual(written, { tokens: ids.length, documents: 2, textBytes: text.length + 5 });
      assert.deepEqual(file.subarray(0), ids);
      assert.deepEqual(file.document(1), tokenizer.encode("short"));
      assert.deepEqual(file.document(0), tokenizer.encode(text));
      const shape = { batch: 3, time: 17 };
      assert.deepEqual(
        randomWindows(file, shape, new Random(1))(5),
        randomWindows(ids, shape, new Random(1))(5),
      );
      assert.deepEqual([...evaluationWindows(file, shape)], [...evaluationWindows(ids, shape)]);
      file.close();
      await rm(path);
    }
  }));

test("a token file that was cut short is refused, and one that cannot be written leaves the old one", () =>
  inFolder(async (folder) => {
    const path = join(folder, "tokens");
    const one = [{ name: "a", text: "whale ".repeat(50), ends: true }];
    await writeTokens(path, one, bytes());
    const before = await readFile(path);
    const broken = (async function* () {
      yield one[0]!;
      throw new Error("no space left on device");
    })();
    await assert.rejects(writeTokens(path, broken, bytes()), { code: "E_FORMAT", message: /no space left/ });
    await assert.rejects(writeTokens(path, [], bytes()), { code: "E_FORMAT", message: /no text/ });
    assert.deepEqual(await readFile(path), before);
    assert.deepEqual(await readdir(folder), ["tokens"]);
    await truncate(path, before.length - 5);
    await assert.rejects(openTokens(path), { code: "E_FORMAT", message: /was cut short/ });
    await writeFile(path, "hello");
    await assert.rejects(openTokens(path), { code: "E_FORMAT", message: /is no token file/ });
  }));

test("rows of documents ask for nothing behind a document, packed ones hold every token once a pass", () => {
  const documents = [5, 2, 9, 1].map((length, d) => Int32Array.from({ length }, (_, i) => 100 * d + i));
  const source = documentsOf(documents);
  const rows = documentRows(source, { batch: 4, time: 6 }, new Random(1))(3);
  for (let b = 0; b < 4; b++) {
    const own = (values: Int32Array): number[] => [...values.subarray(b * rows.time, (b + 1) * rows.time)];
    const count = own(rows.mask!).reduce((sum, value) => sum + value, 0);
    const document = documents[Math.floor(own(rows.inputs)[0]! / 100)]!;
    assert.equal(count, Math.min(document.length - 1, 6));
    assert.deepEqual(own(rows.inputs).slice(0, count), [...document.subarray(0, count)]);
    assert.deepEqual(own(rows.targets).slice(0, count), [...document.subarray(1, count + 1)]);
    assert.ok(
      own(rows.targets)
        .slice(count)
        .every((target) => target === -100),
    );
  }
  // 4 + 1 + 8 inputs a pass; batches of 13 are a pass each.
  const packed = packedDocuments(source, 13, new Random(2));
  const passes = [0, 1, 2].map((step) => packed(step));
  for (const { inputs, targets, cuSeqlens } of passes) {
    assert.deepEqual(
      [...inputs].sort((a, b) => a - b),
      documents.flatMap((document) => [...document.subarray(0, -1)]).sort((a, b) => a - b),
    );
    assert.deepEqual(
      targets,
      inputs.map((id) => id + 1),
    );
    const bounds = [...cuSeqlens!];
    assert.deepEqual(
      bounds.slice(0, -1).map((from) => inputs[from]! % 100),
      [0, 0, 0],
    );
  }
  assert.notDeepEqual(passes[0]!.inputs, passes[1]!.inputs);
  // Batches that do not fit passes go on where the last one ended.
  const small = packedDocuments(source, 5, new Random(2));
  const joined = Array.from({ length: 13 }, (_, step) => [...small(step).inputs]).flat();
  assert.deepEqual(
    joined.slice(0, 39),
    passes.flatMap(({ inputs }) => [...inputs]),
  );
  assert.throws(() => documentRows(documentsOf([Int32Array.of(1)]), { batch: 1, time: 4 }, new Random(1)), {
    code: "E_CONFIG",
  });
});

test("sub-folders are labels, and a share of each label is held out", () =>
  inFolder(async (folder) => {
    for (const [label, count] of [
      ["ham", 10],
      ["spam", 4],
    ] as const) {
      await mkdir(join(folder, label));
      for (let i = 0; i < count; i++) await writeFile(join(folder, label, `${i}.txt`), `${label} ${i}`);
    }
    const { labels, texts } = await readLabelled(folder);
    assert.deepEqual(labels, ["ham", "spam"]);
    assert.equal(texts.length, 14);
    assert.ok(texts.every(({ text, label }) => text.startsWith(labels[label]!)));
    const { train, heldOut } = holdOut(texts, 0.2, new Random(1));
    assert.deepEqual(
      [0, 1].map((label) => heldOut.filter((item) => item.label === label).length),
      [2, 1],
    );
    assert.equal(new Set([...train, ...heldOut]).size, 14);
    await assert.rejects(readLabelled(join(folder, "ham")), {
      code: "E_FORMAT",
      message: /two or more, got 0/,
    });
    await mkdir(join(folder, "empty"));
    await assert.rejects(readLabelled(folder), { code: "E_FORMAT", message: /holds no files/ });
    assert.throws(() => holdOut([{ label: 1 }], 0.5, new Random(1)), { code: "E_FORMAT" });
  }));
