import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NumericsError } from "../errors.ts";
import { philox, philoxKey, randomBits } from "./philox.ts";

const word = fc.integer({ min: 0, max: 2 ** 32 - 1 });

function draw(counter: readonly number[], key0: number, key1: number): number[] {
  const words = Uint32Array.from(counter);
  philox(words, key0, key1);
  return [...words];
}

/** The definition, in whole numbers of any size. */
function definition(counter: readonly number[], key: readonly number[]): number[] {
  let [c0, c1, c2, c3] = counter.map(BigInt) as [bigint, bigint, bigint, bigint];
  let [k0, k1] = key.map(BigInt) as [bigint, bigint];
  const mask = 0xffffffffn;
  for (let round = 0; round < 10; round++) {
    const product0 = 0xd2511f53n * c0;
    const product1 = 0xcd9e8d57n * c2;
    [c0, c1, c2, c3] = [
      (product1 >> 32n) ^ c1 ^ k0,
      product1 & mask,
      (product0 >> 32n) ^ c3 ^ k1,
      product0 & mask,
    ];
    k0 = (k0 + 0x9e3779b9n) & mask;
    k1 = (k1 + 0xbb67ae85n) & mask;
  }
  return [c0, c1, c2, c3].map(Number);
}

test("philox gives the known answers of Random123", () => {
  assert.deepEqual(draw([0, 0, 0, 0], 0, 0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
  const ones = 0xffffffff;
  assert.deepEqual(
    draw([ones, ones, ones, ones], ones, ones),
    [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
  );
  assert.deepEqual(
    draw([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], 0xa4093822, 0x299f31d0),
    [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
  );
});

test("philox agrees with its definition in big integers", () => {
  fc.assert(
    fc.property(fc.tuple(word, word, word, word), fc.tuple(word, word), (counter, key) => {
      assert.deepEqual(draw(counter, key[0], key[1]), definition(counter, key));
    }),
    { numRuns: 500 },
  );
});

test("a block is the counter of its number and stream under the key of the seed", () => {
  const key = philoxKey(5 * 2 ** 32 + 7, 3 * 2 ** 32 + 9);
  assert.deepEqual(key, { key0: 7, key1: 5, stream0: 9, stream1: 3 });
  const words = randomBits(new Uint32Array(8), key, 2 ** 33 + 2 ** 32 - 1);
  assert.deepEqual([...words.slice(0, 4)], definition([2 ** 32 - 1, 2, 9, 3], [7, 5]));
  assert.deepEqual([...words.slice(4)], definition([0, 3, 9, 3], [7, 5]));
});

test("any part of a sequence is drawn without the rest", () => {
  const key = philoxKey(1, "dropout");
  const all = randomBits(new Uint32Array(64), key);
  for (let block = 0; block < 16; block++) {
    for (let length = 0; length <= 64 - 4 * block; length++) {
      const part = randomBits(new Uint32Array(length), key, block);
      assert.deepEqual(part, all.slice(4 * block, 4 * block + length));
    }
  }
});

test("named streams differ from each other and from numbered ones", () => {
  const keys = ["", "a", "b", "ab", "ba", "layers.0.q.weight", "layers.1.q.weight"].map((name) =>
    philoxKey(0, name),
  );
  assert.equal(new Set(keys.map(({ stream0, stream1 }) => `${stream0} ${stream1}`)).size, keys.length);
  for (const { stream1 } of keys) assert.ok(stream1 >= 2 ** 31);
  assert.ok(philoxKey(0, 2 ** 53 - 1).stream1 < 2 ** 31);
});

test("seeds, streams and blocks that are no counts are refused", () => {
  for (const bad of [-1, 0.5, Number.NaN, 2 ** 53]) {
    assert.throws(() => philoxKey(bad), NumericsError);
    assert.throws(() => philoxKey(0, bad), NumericsError);
    assert.throws(() => randomBits(new Uint32Array(1), philoxKey(0), bad), {
      message: `[randomBits] block is no count: expected a whole number from 0 to 2^53 - 1, got ${bad}`,
    });
  }
});
