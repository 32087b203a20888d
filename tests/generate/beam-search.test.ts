import assert from "node:assert/strict";
import { test } from "node:test";
import { beamSearch, type LanguageModel, logProbabilities } from "../../src/generate/index.ts";
import { fewLetters } from "./models.ts";

const letters = "abcd";
const stop = 3;

/** Log-probabilities of the next token after a prompt and ids, everything read anew. */
async function nextAfter(
  model: LanguageModel,
  prompt: string,
  ids: readonly number[],
): Promise<Float64Array> {
  const session = model.session();
  await session.prefill(prompt);
  for (const id of ids) session.step(id);
  const all = logProbabilities(session.logits!);
  session.dispose();
  return all;
}

interface Found {
  readonly ids: readonly number[];
  readonly logProbability: number;
  readonly score: number;
}

/** Every text up to a length, or that ends before with the stop token. */
async function everyText(model: LanguageModel, most: number, penalty: number): Promise<Found[]> {
  const found: Found[] = [];
  const walk = async (ids: readonly number[], logProbability: number): Promise<void> => {
    const next = await nextAfter(model, "ab", ids);
    for (let id = 0; id < letters.length; id++) {
      const sum = logProbability + next[id]!;
      const length = ids.length + 1;
      const score = sum / length ** penalty;
      if (id === stop) found.push({ ids, logProbability: sum, score });
      else if (length === most) found.push({ ids: [...ids, id], logProbability: sum, score });
      else await walk([...ids, id], sum);
    }
  };
  await walk([], 0);
  return found.sort((a, b) => b.score - a.score);
}

/** Beam search that reads every beginning anew at every token: no state is ever forked. */
async function plainSearch(
  model: LanguageModel,
  beams: number,
  most: number,
  penalty: number,
): Promise<Found[]> {
  let living: { ids: readonly number[]; logProbability: number }[] = [{ ids: [], logProbability: 0 }];
  const done: Found[] = [];
  for (let length = 1; length <= most; length++) {
    const all: { ids: readonly number[]; logProbability: number }[] = [];
    for (const { ids, logProbability } of living) {
      const next = await nextAfter(model, "ab", ids);
      for (let id = 0; id < letters.length; id++)
        all.push({ ids: [...ids, id], logProbability: logProbability + next[id]! });
    }
    all.sort((a, b) => b.logProbability - a.logProbability);
    living = [];
    for (const candidate of all) {
      const score = candidate.logProbability / length ** penalty;
      if (candidate.ids.at(-1) === stop) done.push({ ...candidate, ids: candidate.ids.slice(0, -1), score });
      else living.push(candidate);
      if (living.length === beams) break;
    }
    if (length === most)
      for (const left of living) done.push({ ...left, score: left.logProbability / length ** penalty });
  }
  return done.sort((a, b) => b.score - a.score).slice(0, beams);
}

function assertFound(got: readonly Found[], wanted: readonly Found[]): void {
  assert.deepEqual(
    got.map(({ ids }) => ids),
    wanted.map(({ ids }) => ids),
  );
  for (const [i, { logProbability, score }] of got.entries()) {
    assert.ok(Math.abs(logProbability - wanted[i]!.logProbability) < 1e-5);
    assert.ok(Math.abs(score - wanted[i]!.score) < 1e-5);
  }
}

test("a beam as wide as all texts finds the likeliest of them, in order", async () => {
  for (const pattern of [["gated-delta"], ["softmax"]]) {
    const model = fewLetters(letters, { pattern });
    const session = model.session();
    await session.prefill("ab");
    for (const lengthPenalty of [0, 1]) {
      const options = { beams: 81, maxNewTokens: 4, stopTokens: [stop], lengthPenalty };
      const wanted = await everyText(model, 4, lengthPenalty);
      assertFound(await beamSearch(session, options), wanted.slice(0, 81));
    }
    assert.deepEqual([session.position, model.taken], [2, 1], "the session stays, its forks are gone");
  }
});

test("a narrow beam finds what a search without states finds", async () => {
  for (const seed of [1, 2, 3, 4]) {
    const model = fewLetters(letters, { pattern: ["gated-delta", "linear"], layers: 2 }, seed);
    const session = model.session();
    await session.prefill("ab");
    for (const beams of [1, 2, 3]) {
      const options = { beams, maxNewTokens: 7, stopTokens: [stop] };
      assertFound(await beamSearch(session, options), await plainSearch(model, beams, 7, 1));
    }
    const [best] = await beamSearch(session, { beams: 1, maxNewTokens: 7, stopTokens: [] });
    const greedy = await session.fork().generate({ temperature: 0, maxNewTokens: 7, stopTokens: [] });
    assert.deepEqual([best!.ids, best!.text], [greedy.ids, greedy.text]);
  }
});

test("a search refuses what it cannot do and gives its states back when it is aborted", async () => {
  const model = fewLetters(letters);
  const session = model.session();
  const options = { maxNewTokens: 3 };
  await assert.rejects(beamSearch(session, options), /has read something/);
  await session.prefill("ab");
  for (const wrong of [{ beams: 0 }, { maxNewTokens: 0 }, { lengthPenalty: -1 }])
    await assert.rejects(beamSearch(session, { ...options, ...wrong }), { code: "E_CONFIG" });
  await assert.rejects(beamSearch(session, { ...options, signal: AbortSignal.abort() }), {
    name: "AbortError",
  });
  assert.equal(model.taken, 1);
  session.step(1);
});
