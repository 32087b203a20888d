import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../tensor/random.ts";
import { makeSequences, unasked } from "./comparison/sequences.ts";
import { makeCopy } from "./copy/index.ts";
import { makeInduction } from "./induction/index.ts";
import { makeRecall } from "./mqar/index.ts";

function rows(maker: Parameters<typeof makeSequences>[0], time: number) {
  const { inputs, targets } = makeSequences(maker, 32, time, new Random(3));
  return Array.from({ length: 32 }, (_, row) => ({
    inputs: [...inputs.subarray(row * time, (row + 1) * time)],
    targets: [...targets.subarray(row * time, (row + 1) * time)],
  }));
}

test("copy asks for the second copy, symbol by symbol", () => {
  for (const { inputs, targets } of rows(makeCopy, 40)) {
    const second = inputs.indexOf(0, 1);
    const word = inputs.slice(1, second);
    assert.deepEqual(
      targets.filter((target) => target !== unasked),
      word,
    );
    assert.deepEqual(targets.slice(second, second + word.length), word);
    assert.ok(word.every((symbol) => symbol >= 1 && symbol <= 10) && word.length >= 12);
  }
});

test("mqar asks for every value once, at its key", () => {
  for (const { inputs, targets } of rows(makeRecall({ vocabularySize: 128, pairs: 8 }), 64)) {
    const pairs = new Map(Array.from({ length: 8 }, (_, i) => [inputs[2 * i]!, inputs[2 * i + 1]!]));
    assert.equal(pairs.size, 8);
    assert.equal(new Set(pairs.values()).size, 8);
    const asked = targets.flatMap((target, t) => (target === unasked ? [] : [t]));
    assert.equal(asked.length, 8);
    for (const t of asked) {
      assert.ok(t >= 16);
      assert.equal(targets[t], pairs.get(inputs[t]!));
    }
    for (const [key, value] of pairs) assert.ok(key >= 1 && key < 64 && value >= 64 && value < 128);
  }
  assert.throws(() => rows(makeRecall({ vocabularySize: 128, pairs: 20 }), 64), { code: "E_CONFIG" });
});

test("induction asks for what followed the trigger", () => {
  for (const { inputs, targets } of rows(makeInduction, 32)) {
    assert.equal(inputs.filter((id) => id === 0).length, 2);
    assert.equal(inputs.at(-1), 0);
    assert.equal(targets.at(-1), inputs[inputs.indexOf(0) + 1]);
    assert.equal(targets.filter((target) => target !== unasked).length, 1);
  }
});
