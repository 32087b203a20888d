import assert from "node:assert/strict";
import { test } from "node:test";
import { readSafetensors, writeSafetensors } from "../../src/checkpoint/safetensors.ts";
import { fromValues } from "../../src/checkpoint/safetensors-values.ts";
import { fewLetters, modelOf } from "./models.ts";

const hybrid = { pattern: ["gated-delta", "softmax"] };

test("a saved session goes on with the same bits in another one", async () => {
  for (const config of [{ pattern: ["mamba2"] }, hybrid]) {
    const model = modelOf(config);
    const session = model.session();
    await session.prefill("the sea and the ship");
    const saved = await session.save();
    const other = model.session();
    await other.prefill("something else");
    other.checkpoint();
    other.load(saved);
    assert.deepEqual([other.position, other.ids, other.checkpoints], [20, session.ids, []]);
    assert.deepEqual(other.logits, session.logits);
    const options = { maxNewTokens: 20, seed: 3 };
    assert.deepEqual(await other.generate(options), await session.generate(options));
    assert.deepEqual(await other.save(), await session.save(), "bytes are the same for the same state");
  }
});

test("what is saved is the moment of the call", async () => {
  const session = modelOf(hybrid).session();
  await session.prefill("abc");
  const before = await session.save();
  const saving = session.save();
  session.step(5);
  assert.deepEqual(await saving, before);
});

test("states that are cut short, of another model or version are refused, and the session stays as it is", async () => {
  const model = modelOf(hybrid);
  const session = model.session();
  await session.prefill("the sea and the ship");
  const saved = await session.save();
  const target = model.session();
  await target.prefill("abc");
  const before = await target.save();
  const refused = { code: "E_FORMAT" };
  for (let length = 0; length < saved.length; length += 97)
    assert.throws(() => target.load(saved.slice(0, length)), refused, `${length} bytes`);
  assert.throws(() => target.load(saved.slice(0, -1)), refused);
  for (const other of [modelOf(hybrid, undefined, 2), modelOf({ pattern: ["softmax"] })]) {
    await assert.rejects(async () => other.session().load(saved), {
      code: "E_FORMAT",
      message: /another model/,
    });
  }
  const { metadata, tensors } = readSafetensors(saved, { name: "state" });
  const rewritten = (changes: object, without = ""): Uint8Array => {
    const entries = new Map([...tensors].filter(([name]) => name !== without));
    return writeSafetensors(entries, { ...metadata, ...changes } as Record<string, string>);
  };
  assert.throws(() => target.load(rewritten({ version: "2" })), { code: "E_FORMAT", message: /version/ });
  assert.throws(() => target.load(rewritten({ format: "something" })), refused);
  for (const name of ["ids", "position", [...tensors.keys()].find((key) => key.startsWith("state."))!])
    assert.throws(() => target.load(rewritten({}, name)), refused, name);
  const far = new Map([...tensors, ["position", fromValues(Float64Array.of(1e6), [1])]]);
  const { room } = model.states;
  assert.throws(() => target.load(writeSafetensors(far, metadata)), refused);
  assert.equal(model.states.room, room);
  assert.deepEqual(await target.save(), before);
  target.load(rewritten({}));
  assert.deepEqual(target.logits, session.logits);
});

test("bytes are constant for recurrent layers and stated per token for caches", async () => {
  const linear = modelOf({ pattern: ["linear"] }).session();
  const { bytes } = linear;
  await linear.prefill("a".repeat(300));
  assert.deepEqual(linear.bytes, bytes);
  assert.deepEqual(bytes, { constant: 4 * 2 * (2 * 8 * 8 + 2 * 8), perToken: 0, now: bytes.constant });
  const mixed = modelOf(hybrid).session();
  await mixed.prefill("a".repeat(300));
  assert.equal(mixed.bytes.perToken, 4 * 2 * 16);
  assert.equal(mixed.bytes.now, mixed.bytes.constant + 300 * mixed.bytes.perToken);
});

test("rolling back to any checkpoint goes on as if nothing had come after it", async () => {
  const session = modelOf(hybrid).session();
  await session.prefill("abcdef");
  const six = session.checkpoint();
  await session.generate({ maxNewTokens: 5 });
  const eleven = session.checkpoint();
  const options = { maxNewTokens: 8, seed: 6 };
  const first = await session.generate(options);
  session.rollback(eleven);
  assert.deepEqual(await session.generate(options), first);
  session.rollback(six);
  assert.deepEqual([session.position, session.checkpoints, session.ids.length], [6, [6], 6]);
  assert.throws(() => session.rollback(eleven), /no checkpoint at position 11: expected one of 6/);
  assert.deepEqual((await session.generate({ maxNewTokens: 5 })).ids.length, 5);
  session.forget(six);
  assert.throws(() => session.rollback(six), /expected one of none/);
});

test("forks go on by themselves and give their slots back", async () => {
  const model = modelOf({});
  const session = model.session();
  await session.prefill("abc");
  const fork = session.fork();
  const options = { maxNewTokens: 10, seed: 1 };
  const ahead = await session.generate(options);
  assert.equal(fork.position, 3);
  assert.deepEqual(await fork.generate(options), ahead);
  fork.checkpoint();
  assert.equal(model.taken, 3);
  fork.dispose();
  session.dispose();
  assert.equal(model.taken, 0);
});

test("a session remembers its last ids, however long it gets", async () => {
  const model = fewLetters("abcd");
  const session = model.session({ history: 5 });
  const all: number[] = [];
  for (let i = 0; i < 100; i++) {
    const id = (i * 7 + (i >> 2)) % 4;
    session.step(id);
    all.push(id);
    assert.deepEqual([...session.ids], all.slice(-5));
    assert.equal(session.position, i + 1);
  }
  const mark = session.checkpoint();
  session.step(1);
  session.rollback(mark);
  assert.deepEqual([...session.ids], all.slice(-5));
  assert.throws(() => model.session({ history: -1 }), { code: "E_CONFIG" });
});
