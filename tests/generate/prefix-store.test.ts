import assert from "node:assert/strict";
import { test } from "node:test";
import { PrefixStore } from "../../src/generate/index.ts";
import { device, modelOf } from "./models.ts";

const system = "You are a whale and answer as one. ";

test("a session from the store has the bits of one that read everything", async () => {
  for (const pattern of [["gated-delta"], ["gated-delta", "softmax"]]) {
    const model = modelOf({ pattern });
    const store = new PrefixStore(model, { every: 8 });
    const fresh = new PrefixStore(model, { every: 8, maxBytes: 0 });
    const prompts = ["Who?", "Where to?", "Who?", "Who? And why?"].map((question) => system + question);
    for (const prompt of prompts) {
      const session = await store.open(prompt);
      const wanted = await fresh.open(prompt);
      assert.deepEqual(session.logits, wanted.logits);
      assert.deepEqual([session.ids, session.position], [wanted.ids, wanted.position]);
      const options = { maxNewTokens: 10, seed: 5 };
      assert.deepEqual(await session.generate(options), await wanted.generate(options));
    }
    const { hits, misses, savedTokens } = store.report();
    assert.deepEqual({ hits, misses, savedTokens }, { hits: 3, misses: 1, savedTokens: 32 + 39 + 32 });
    assert.deepEqual(fresh.report(), { hits: 0, misses: 4, savedTokens: 0, entries: 0, bytes: 0 });
  }
});

test("a store keeps to its bytes: what was used longest ago goes first", async () => {
  const model = modelOf({ pattern: ["gated-delta", "softmax"] });
  const before = device.info().bytes.persistent;
  const one = new PrefixStore(model, { every: 1000 });
  await one.open("a".repeat(20));
  const each = one.report().bytes;
  const { constant, perToken } = model.session().bytes;
  assert.equal(each, constant + 20 * perToken + 4 * (20 + 257));
  one.clear();
  const store = new PrefixStore(model, { every: 1000, maxBytes: 3 * each });
  const open = async (letter: string): Promise<number> => {
    const { hits } = store.report();
    const session = await store.open(letter.repeat(20));
    session.dispose();
    assert.ok(store.report().bytes <= 3 * each);
    return store.report().hits - hits;
  };
  for (const letter of "abc") assert.equal(await open(letter), 0);
  assert.equal(await open("a"), 1);
  assert.equal(await open("d"), 0, "and b goes");
  assert.equal(await open("b"), 0, "and c goes");
  assert.deepEqual([await open("a"), await open("d"), await open("b"), await open("c")], [1, 1, 1, 0]);
  assert.equal(store.report().entries, 3);
  const held = device.info().bytes.persistent;
  store.clear();
  assert.ok(device.info().bytes.persistent < held);
  assert.ok(device.info().bytes.persistent >= before);
});

test("a store refuses bad sizes, and keeps nothing of a prompt that fails", async () => {
  const model = modelOf({});
  assert.throws(() => new PrefixStore(model, { every: 0 }), { code: "E_CONFIG" });
  assert.throws(() => new PrefixStore(model, { maxBytes: -1 }), { code: "E_CONFIG" });
  const store = new PrefixStore(model);
  await assert.rejects(store.open([1, 2, 999]), { code: "E_CONFIG" });
  await assert.rejects(store.open("abc", { signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(model.taken, 0);
  const empty = await store.open("");
  assert.equal(empty.position, 0);
  assert.deepEqual(store.report(), { hits: 0, misses: 0, savedTokens: 0, entries: 0, bytes: 0 });
});
