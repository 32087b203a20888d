import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../tensor/random.ts";
import { checkSampling, distribution, sample } from "./sampler.ts";

const logits = [1, 3, 2, 2, -4];

test("sampling keeps what its options say", () => {
  assert.deepEqual([...distribution(logits, { temperature: 0 }).ids], [1]);
  assert.deepEqual([...distribution(logits, { topK: 3 }).ids], [1, 2, 3]);
  assert.deepEqual([...distribution(logits, { topK: 2 }).ids], [1, 2]);
  assert.deepEqual([...distribution(logits, { topP: 0 }).ids], [1]);
  assert.deepEqual([...distribution(logits, { topP: 1 }).ids], [0, 1, 2, 3, 4]);
  assert.deepEqual([...distribution(logits, { topP: 0.6 }).ids], [1, 2]);
  assert.deepEqual([...distribution(logits, { minP: 0.3 }).ids], [1, 2, 3]);
  assert.deepEqual([...distribution(logits, { repetitionPenalty: 3 }, [1, 1, 4]).ids], [0, 1, 2, 3, 4]);
  const penalized = distribution(logits, { repetitionPenalty: 3 }, [1, 1, 4]).probabilities;
  assert.ok(Math.abs(penalized[1]! / penalized[0]! - 1) < 1e-12, "3 / 3 is as likely as 1");
  assert.ok(Math.abs(penalized[4]! / penalized[0]! / Math.exp(-13) - 1) < 1e-12, "-4 · 3 against 1");
});

test("sampled frequencies follow the distribution", () => {
  const random = new Random(5);
  const wanted = distribution(logits, { temperature: 1.3, topK: 4 });
  const counts = new Map<number, number>();
  const draws = 20_000;
  for (let i = 0; i < draws; i++) {
    const { id, logProbability } = sample(wanted, random);
    counts.set(id, (counts.get(id) ?? 0) + 1);
    assert.equal(
      Math.exp(logProbability).toFixed(9),
      wanted.probabilities[wanted.ids.indexOf(id)]!.toFixed(9),
    );
  }
  let chiSquare = 0;
  for (const [i, id] of wanted.ids.entries()) {
    const expected = draws * wanted.probabilities[i]!;
    chiSquare += ((counts.get(id) ?? 0) - expected) ** 2 / expected;
  }
  // 99.9 % of draws of chi-square with 3 degrees of freedom lie below 16.3
  assert.ok(chiSquare < 16.3, `chi-square ${chiSquare}`);
});

test("sampling refuses NaN and options outside their range", () => {
  assert.throws(() => distribution([1, Number.NaN]), { code: "E_NUMERICS" });
  for (const wrong of [
    { temperature: -1 },
    { topK: 0 },
    { topP: 1.1 },
    { minP: -0.1 },
    { repetitionPenalty: 0 },
  ]) {
    assert.throws(() => checkSampling(wrong), { code: "E_CONFIG" });
  }
});
