import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Random } from "../tensor/random.ts";
import { evaluationWindows, randomWindows, runningWindows } from "./batches.ts";
import { bytePair, pieces } from "./byte-pair.ts";
import { trainBytePair } from "./byte-pair-train.ts";
import { bytes } from "./bytes.ts";
import { characters } from "./characters.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { tokenizerFrom } from "./tokenizer-from.ts";

const sample = "the whale, the white whale — das weiße Wal\n\n  42 1234567 it's 🐋🐋 the end";

function kinds(): Tokenizer[] {
  return [bytes(), characters(sample), bytePair(trainBytePair([sample, sample], 290))];
}

test("tokenizers decode what they encode, whole and streamed", () => {
  for (const tokenizer of kinds()) {
    const ids = tokenizer.encode(sample);
    assert.equal(tokenizer.decode(ids), sample);
    const stream = tokenizer.stream();
    const parts = [...ids].map((id) => stream.push(id));
    for (const part of parts) assert.ok(!part.includes("\uFFFD"), "no character is split");
    assert.equal(parts.join("") + stream.end(), sample);
    assert.deepEqual(tokenizerFrom(JSON.parse(JSON.stringify(tokenizer.toJSON()))).encode(sample), ids);
  }
});

test("byte tokenizers express every text", () => {
  const merged = bytePair(trainBytePair([sample], 280));
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      assert.equal(bytes().decode(bytes().encode(text)), text);
      assert.equal(merged.decode(merged.encode(text)), text);
      assert.equal([...pieces(text)].join(""), text);
    }),
  );
});

test("byte-pair training merges the most frequent pair first and counts as a recount would", () => {
  const text = "low lower lowest newest widest low low";
  const merges = trainBytePair([text], 257 + 6);
  let words = [...pieces(text)].map((piece) => [...new TextEncoder().encode(piece)]);
  for (const [rank, [left, right]] of merges.entries()) {
    const counts = new Map<string, number>();
    for (const word of words) {
      for (let i = 0; i + 1 < word.length; i++) {
        const key = `${word[i]} ${word[i + 1]}`;
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
    }
    assert.equal(counts.get(`${left} ${right}`), Math.max(...counts.values()), `merge ${rank}`);
    words = words.map((word) => {
      const next: number[] = [];
      for (let i = 0; i < word.length; i++) {
        if (word[i] === left && word[i + 1] === right) {
          next.push(257 + rank);
          i++;
        } else next.push(word[i]!);
      }
      return next;
    });
  }
});

test("characters outside the vocabulary are named", () => {
  assert.throws(() => characters("abc").encode("abz"), {
    code: "E_CONFIG",
    message: /"z" is not in the vocabulary/,
  });
});

test("windows hold a text and its next tokens", () => {
  const ids = Int32Array.from({ length: 41 }, (_, i) => i);
  for (const batch of [
    randomWindows(ids, { batch: 3, time: 8 }, new Random(1))(7),
    runningWindows(ids, { batch: 2, time: 5 })(3),
    ...evaluationWindows(ids, { batch: 3, time: 8 }),
  ]) {
    assert.deepEqual(
      batch.targets,
      batch.inputs.map((id) => id + 1),
    );
  }
  const rows = [...evaluationWindows(ids, { batch: 3, time: 8 })];
  assert.deepEqual(
    rows.map((row) => row.batch),
    [3, 2],
  );
  const running = runningWindows(ids, { batch: 2, time: 5 });
  assert.equal(running(1).inputs[0], running(0).targets[4]);
  assert.deepEqual(running(running.stepsPerPass), running(0));
  const random = randomWindows(ids, { batch: 4, time: 2 }, new Random(1));
  assert.deepEqual(random(5), random(5));
  assert.notDeepEqual(random(5), random(6));
  assert.throws(() => randomWindows(ids, { batch: 1, time: 41 }, new Random(1)), { code: "E_CONFIG" });
});
