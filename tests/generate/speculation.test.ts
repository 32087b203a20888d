import assert from "node:assert/strict";
import { test } from "node:test";
import { distribution, type GenerateOptions, type LanguageModel } from "../../src/generate/index.ts";
import { chiSquare, fewLetters, modelOf } from "./models.ts";

const letters = "abc";
const length = 3;

/** The expected counts of every text of three letters under the model and these options. */
async function expectedTexts(
  model: LanguageModel,
  options: GenerateOptions,
  draws: number,
): Promise<Map<string, number>> {
  const expected = new Map<string, number>();
  const walk = async (ids: readonly number[], probability: number): Promise<void> => {
    if (ids.length === length) {
      if (probability > 0) expected.set(ids.map((id) => letters[id]).join(""), probability * draws);
      return;
    }
    const session = model.session();
    await session.prefill("ab");
    for (const id of ids) session.step(id);
    const next = distribution(session.logits!, options, session.ids);
    session.dispose();
    for (const [i, id] of next.ids.entries()) await walk([...ids, id], probability * next.probabilities[i]!);
  };
  await walk([], 1);
  return expected;
}

test("what a draft proposes and the model accepts is distributed as the model says", async () => {
  const model = fewLetters(letters, { layers: 2 }, 5);
  const draft = fewLetters(letters, { pattern: ["linear"] }, 6);
  const draws = 1000;
  for (const sampling of [{}, { temperature: 0.7, topK: 2 }, { repetitionPenalty: 1.5 }]) {
    const expected = await expectedTexts(model, sampling, draws);
    const counts = new Map<string, number>();
    let accepted = 0;
    let proposed = 0;
    const session = model.session();
    await session.prefill("ab");
    const start = session.checkpoint();
    for (let seed = 0; seed < draws; seed++) {
      const result = await session.generate({
        ...sampling,
        seed,
        maxNewTokens: length,
        draft,
        draftTokens: 2,
      });
      counts.set(result.text, (counts.get(result.text) ?? 0) + 1);
      accepted += result.draft!.accepted;
      proposed += result.draft!.proposed;
      session.rollback(start);
    }
    const { found, bound } = chiSquare(counts, expected);
    assert.ok(found < bound, `${JSON.stringify(sampling)}: chi-square ${found}, expected less than ${bound}`);
    assert.ok(accepted > 0 && accepted < proposed, "some proposals stay and some do not");
    assert.deepEqual([model.taken, draft.taken], [2, 0], "the session's slot and that of its checkpoint");
    session.dispose();
  }
});

test("a wrong acceptance would be seen", async () => {
  const model = fewLetters(letters, { layers: 2 }, 5);
  const draft = fewLetters(letters, { pattern: ["linear"] }, 6);
  const expected = await expectedTexts(model, {}, 1000);
  const itsOwn = await expectedTexts(draft, {}, 1000);
  const { found, bound } = chiSquare(itsOwn, expected);
  assert.ok(found > 3 * bound);
});

test("greedy speculation writes what greedy generation writes, whatever the draft proposes", async () => {
  for (const pattern of [["gated-delta"], ["mamba2"], ["gated-delta", "softmax"]]) {
    const model = modelOf({ pattern });
    const same = modelOf({ pattern });
    const other = modelOf({ pattern: ["linear"], layers: 1 }, undefined, 9);
    const options = { prompt: "the whale", maxNewTokens: 60, temperature: 0, stopTokens: [] };
    const plain = await model.session().generate(options);
    for (const draft of [same, other]) {
      for (const draftTokens of [1, 3, 8]) {
        const session = model.session();
        const result = await session.generate({ ...options, draft, draftTokens });
        assert.deepEqual(result.ids, plain.ids, `${pattern} ${draftTokens}`);
        assert.equal(session.position, 69);
        if (draft === same) assert.equal(result.draft!.accepted, result.draft!.proposed);
      }
    }
  }
});

test("a speculative generation that is left in the middle leaves the session where it was read to", async () => {
  const model = modelOf({});
  const draft = modelOf({});
  for (const pieces of [1, 2, 3, 4, 5, 6, 7]) {
    const session = model.session();
    const ids: number[] = [];
    for await (const { id } of session.generate({ prompt: "abc", seed: 3, draft, draftTokens: 4 })) {
      ids.push(id!);
      assert.equal(session.position, 3 + ids.length);
      assert.throws(() => session.fork(), { code: "E_CONFIG" });
      if (ids.length === pieces) break;
    }
    const wanted = model.session();
    await wanted.prefill("abc");
    for (const id of ids) wanted.step(id);
    const next = session.step(7);
    const expected = wanted.step(7);
    for (const [i, value] of next.entries())
      assert.ok(Math.abs(value - expected[i]!) < 1e-3 * (1 + Math.abs(value)));
    assert.equal(draft.taken, 0);
  }
});

test("speculation ends at stop tokens and texts, and refuses another vocabulary", async () => {
  const model = modelOf({});
  const draft = modelOf({});
  const plain = await model
    .session()
    .generate({ prompt: "abc", temperature: 0, maxNewTokens: 12, stopTokens: [] });
  const stopTokens = [plain.ids[5]!];
  const first = plain.ids.indexOf(stopTokens[0]!);
  const session = model.session();
  const result = await session.generate({ prompt: "abc", temperature: 0, stopTokens, draft, draftTokens: 8 });
  assert.deepEqual([result.ids, result.finishReason], [plain.ids.slice(0, first), "token"]);
  assert.equal(session.position, 3 + first + 1);
  assert.throws(() => session.generate({ draft: fewLetters("abc") }), /another vocabulary/);
});
