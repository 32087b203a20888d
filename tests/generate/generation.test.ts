import assert from "node:assert/strict";
import { test } from "node:test";
import { logProbabilities } from "../../src/generate/index.ts";
import { characters } from "../../src/text/characters.ts";
import { fewLetters, modelOf, writerOf } from "./models.ts";

async function textsOf(pieces: AsyncIterable<{ text: string }>): Promise<string[]> {
  const texts: string[] = [];
  for await (const { text } of pieces) texts.push(text);
  return texts;
}

test("pieces hold whole characters and are the text", async () => {
  const script = "naïve — 漢字 🎉🐋 end";
  const model = writerOf(script, 2);
  const texts = await textsOf(model.session().generate({ prompt: "ab", maxNewTokens: 100 }));
  assert.equal(texts.join(""), script);
  for (const text of texts) assert.equal(text.includes("\uFFFD"), false, "no piece splits a character");
  assert.ok(texts.includes("🐋") && texts.includes("漢"));
  const cut = await writerOf("🎉", 2).session().generate({ prompt: "ab", maxNewTokens: 3 });
  assert.equal(cut.text, "\uFFFD", "what never became a character shows as one that is missing");
});

test("awaiting gives what iterating gives, and log-probabilities where they are asked for", async () => {
  const model = modelOf({});
  const options = { prompt: "call", maxNewTokens: 12, seed: 4 };
  const result = await model.session().generate({ ...options, logProbabilities: 2 });
  const session = model.session();
  const ids: number[] = [];
  let text = "";
  for await (const piece of session.generate(options)) {
    if (piece.id !== undefined) ids.push(piece.id);
    assert.equal(piece.logProbability, undefined);
    text += piece.text;
  }
  assert.deepEqual(ids, result.ids);
  assert.equal(text, result.text);
  assert.equal(result.finishReason, "length");
  assert.equal(session.position, 16);
  const again = model.session();
  await again.prefill("call");
  for (const [i, id] of result.ids.entries()) {
    const all = logProbabilities(again.logits!);
    assert.equal(result.logProbabilities![i], all[id]);
    const likeliest = result.likeliest![i]!;
    assert.deepEqual(
      [...all].sort((a, b) => b - a).slice(0, 2),
      likeliest.map(({ logProbability }) => logProbability),
    );
    again.step(id);
  }
  assert.equal(
    "likeliest" in (await model.session().generate({ ...options, logProbabilities: true })),
    false,
  );
  assert.equal("logProbabilities" in (await model.session().generate(options)), false);
});

test("leaving the loop ends the work and leaves the session where it got to", async () => {
  const session = modelOf({}).session();
  let pieces = 0;
  for await (const _ of session.generate({ prompt: "abc" })) if (++pieces === 5) break;
  assert.equal(session.position, 8);
  const { text } = await session.generate({ maxNewTokens: 2 });
  assert.equal(session.position, 10);
  assert.equal(typeof text, "string");
});

test("a signal ends a generation, also one that was aborted before", async () => {
  const session = modelOf({}).session();
  const before = AbortSignal.abort();
  await assert.rejects(async () => session.generate({ prompt: "abc", signal: before }), {
    name: "AbortError",
  });
  await assert.rejects(session.prefill("abc", { signal: before }), { name: "AbortError" });
  assert.equal(session.position, 0, "nothing was read");
  const controller = new AbortController();
  let pieces = 0;
  await assert.rejects(
    async () => {
      for await (const _ of session.generate({ prompt: "abc", signal: controller.signal }))
        if (++pieces === 3) controller.abort();
    },
    { name: "AbortError" },
  );
  assert.deepEqual([pieces, session.position], [3, 6]);
  const reading = new AbortController();
  const seen: number[] = [];
  const onProgress = (done: number): void => {
    seen.push(done);
    if (done === 14) reading.abort();
  };
  const long = "a".repeat(40);
  await assert.rejects(session.prefill(long, { chunk: 7, signal: reading.signal, onProgress }), {
    name: "AbortError",
  });
  assert.deepEqual([seen, session.position], [[7, 14], 20]);
});

test("timers run while a session reads and writes", async () => {
  const session = modelOf({}).session();
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  await session.prefill("a".repeat(6000), { chunk: 64 });
  const afterReading = ticks;
  await session.generate({ maxNewTokens: 800 });
  clearInterval(timer);
  assert.ok(afterReading > 0 && ticks > afterReading, `${afterReading} ${ticks}`);
});

test("one thing at a time runs on a session", async () => {
  const session = modelOf({}).session();
  const first = session.generate({ prompt: "abc", maxNewTokens: 4 });
  const second = session.generate({ maxNewTokens: 4 });
  const iterator = first[Symbol.asyncIterator]();
  await iterator.next();
  const busy = { code: "E_CONFIG", message: /busy/ };
  await assert.rejects(async () => second, busy);
  await assert.rejects(session.prefill("x"), busy);
  assert.throws(() => session.step(1), busy);
  assert.throws(() => session.rollback(0), busy);
  assert.throws(() => session.load(new Uint8Array(9)), busy);
  assert.throws(() => session.model.step([session], [1]), busy);
  const fork = session.fork();
  assert.equal(fork.position, session.position, "a copy may be taken between two pieces");
  await iterator.return!("length");
  assert.equal((await session.generate({ maxNewTokens: 4 })).ids.length, 4);
  await assert.rejects(textsOf(first), /consumed once/);
});

test("a disposed session refuses everything", async () => {
  const model = modelOf({});
  const session = model.session();
  await session.prefill("abc");
  const running = session.generate({})[Symbol.asyncIterator]();
  await running.next();
  session.dispose();
  session.dispose();
  const gone = { code: "E_DISPOSED" };
  await assert.rejects(async () => running.next(), gone);
  await assert.rejects(session.prefill("x"), gone);
  for (const use of [
    () => session.step(1),
    () => session.generate(),
    () => session.fork(),
    () => session.checkpoint(),
    () => session.rollback(3),
    () => session.save(),
    () => session.load(new Uint8Array(8)),
    () => session.slot,
  ])
    assert.throws(use, gone);
  assert.equal(model.taken, 0, "its slot was given back, once");
  const other = model.session();
  model.dispose();
  model.dispose();
  assert.throws(() => other.step(1), gone);
  assert.throws(() => model.session(), gone);
});

test("an empty prompt begins a document where the vocabulary has a beginning", async () => {
  const model = modelOf({});
  const fromNothing = await model.session().generate({ maxNewTokens: 6, seed: 2 });
  const fromEmpty = await model.session().generate({ prompt: "", maxNewTokens: 6, seed: 2 });
  const session = model.session();
  session.step(256);
  assert.deepEqual(fromEmpty, fromNothing);
  assert.deepEqual(await session.generate({ maxNewTokens: 6, seed: 2 }), fromNothing);
  await assert.rejects(async () => fewLetters("abc").session().generate({ maxNewTokens: 1 }), {
    code: "E_CONFIG",
  });
});

test("unknown characters and ids are refused before anything is read", async () => {
  const model = fewLetters("abc");
  const session = model.session();
  await assert.rejects(async () => session.generate({ prompt: "abcd" }), /"d" is not in the vocabulary/);
  await assert.rejects(session.prefill([0, 1, 3]), /ids are 0 to 2, got 3 at position 2/);
  await assert.rejects(session.prefill([0.5]), { code: "E_CONFIG" });
  await assert.rejects(session.prefill([-1]), { code: "E_CONFIG" });
  assert.throws(() => session.step(3), { code: "E_CONFIG" });
  assert.throws(() => session.step(Number.NaN), { code: "E_CONFIG" });
  assert.equal(session.position, 0);
});

test("temperature 0 and topP 0 take the likeliest token, topP 1 leaves all", async () => {
  const model = modelOf({});
  const write = async (options: object): Promise<readonly number[]> =>
    (await model.session().generate({ prompt: "once", maxNewTokens: 20, ...options })).ids;
  const greedy = await write({ temperature: 0 });
  assert.deepEqual(await write({ temperature: 0, seed: 9 }), greedy);
  assert.deepEqual(await write({ topP: 0, seed: 9 }), greedy);
  assert.deepEqual(await write({ top_k: 1, seed: 9 }), greedy);
  const free = await write({ seed: 9 });
  assert.deepEqual(await write({ topP: 1, minP: 0, seed: 9 }), free);
  assert.notDeepEqual(free, greedy);
  assert.notDeepEqual(await write({ seed: 10 }), free);
  for (const wrong of [{ temperature: -1 }, { top_p: 2 }, { maxNewTokens: 1.5 }, { draftTokens: 0 }])
    assert.throws(() => model.session().generate(wrong), { code: "E_CONFIG" });
});

test("generation ends at stop texts, stop tokens and its length", async () => {
  const stopAt = async (stop: string | string[], script: string): Promise<string> => {
    const result = await writerOf(script, 1).session().generate({ prompt: "x", stop, maxNewTokens: 30 });
    return `${result.text}|${result.finishReason}`;
  };
  assert.equal(await stopAt("END", "some textEND more"), "some text|stop");
  assert.equal(await stopAt(["xt", "text"], "some text"), "some |stop", "complete together: the longer");
  assert.equal(await stopAt(["ex", "text"], "some text"), "some t|stop", "complete first");
  assert.equal(await stopAt(["aab"], "aaab"), "a|stop");
  assert.equal(await stopAt(["EN", "ENX"], "teEND"), "te|stop");
  assert.equal(
    await stopAt("ENX", "the END"),
    "the END|token",
    "a beginning of a stop is shown when it was none",
  );
  const model = writerOf("abcdef", 1);
  const none = await model.session().generate({ prompt: "x", maxNewTokens: 0 });
  assert.deepEqual(none, { text: "", ids: [], finishReason: "length" });
  const atToken = model.session();
  const ended = await atToken.generate({ prompt: "x", stopTokens: [99] });
  assert.deepEqual([ended.text, ended.finishReason, atToken.position], ["ab", "token", 4]);
});

test("a penalty counts what the session remembers", async () => {
  const model = modelOf({}, characters("abcdefgh"));
  const options = { prompt: "ab", maxNewTokens: 30, temperature: 0, repetitionPenalty: 50 };
  const remembering = await model.session().generate(options);
  const forgetful = await model.session({ history: 0 }).generate(options);
  const plain = await model.session().generate({ ...options, repetitionPenalty: 1 });
  assert.deepEqual(forgetful.ids, plain.ids);
  assert.notDeepEqual(remembering.ids, plain.ids);
});
