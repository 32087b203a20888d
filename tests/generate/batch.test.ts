import assert from "node:assert/strict";
import { test } from "node:test";
import { Batch, type Session } from "../../src/generate/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { modelOf } from "./models.ts";

const patterns = [
  ["gated-delta"],
  ["linear"],
  ["mamba2", "retention"],
  ["gated-delta", "softmax"],
  ["sliding-window"],
];

test("a row's text does not depend on its neighbours, whenever they come and go", async () => {
  for (const pattern of patterns) {
    const model = modelOf({ pattern });
    const random = new Random(21, pattern.join(" "));
    const below = (n: number): number => Math.floor(random.next() * n);
    const jobs = Array.from({ length: 9 }, (_, seed) => ({
      prompt: String.fromCharCode(...Array.from({ length: 1 + below(90) }, () => 97 + below(26))),
      ...{ maxNewTokens: 1 + below(24), seed, temperature: 0.7, logProbabilities: true },
    }));
    const alone = [];
    for (const job of jobs) {
      const session = model.session();
      alone.push(await session.generate(job));
      session.dispose();
    }
    const batch = new Batch(model, { rows: 4 });
    const together = await Promise.all(
      jobs.map(async (job) => {
        for (let turns = below(20); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
        const session = model.session();
        const result = await batch.generate(session, job);
        session.dispose();
        return result;
      }),
    );
    assert.deepEqual(together, alone, pattern.join(" "));
    assert.equal(model.taken, 0);
    model.dispose();
  }
});

test("sessions step together under one call, each with the bits of its own", () => {
  const model = modelOf({});
  const random = new Random(8);
  const sessions: Session[] = [];
  const twins: Session[] = [];
  for (let round = 0; round < 60; round++) {
    if (sessions.length < 5 && random.next() < 0.4) {
      sessions.push(model.session());
      twins.push(model.session());
    } else if (sessions.length > 1 && random.next() < 0.2) {
      const at = Math.floor(random.next() * sessions.length);
      for (const list of [sessions, twins]) list.splice(at, 1)[0]!.dispose();
    }
    const ids = sessions.map(() => Math.floor(random.next() * 256));
    const rows = model.step(sessions, ids);
    for (const [i, twin] of twins.entries()) assert.deepEqual(rows[i], twin.step(ids[i]!));
  }
  const [a, b] = [model.session(), modelOf({}).session()];
  assert.throws(() => model.step([a, b], [1, 2]), { code: "E_CONFIG" });
  assert.throws(() => model.step([a, a], [1, 2]), { code: "E_CONFIG" });
  assert.throws(() => model.step([a], [1, 2]), { code: "E_CONFIG" });
  assert.throws(() => model.step([a], [257]), { code: "E_CONFIG" });
  assert.equal(a.step(1).length, 257, "a refused step leaves the session usable");
});

test("one that ends, breaks or is disposed stops nobody else", async () => {
  const model = modelOf({});
  const batch = new Batch(model);
  const [a, b, c] = [model.session(), model.session(), model.session()];
  const long = batch.generate(a, { prompt: "abc", maxNewTokens: 40, seed: 1 });
  const aborted = new AbortController();
  const cut = (async () => {
    for await (const _ of batch.generate(b, { prompt: "x", signal: aborted.signal }))
      if (b.position > 6) aborted.abort();
  })();
  const gone = (async () => {
    for await (const _ of batch.generate(c, { prompt: "y" })) if (c.position > 4) c.dispose();
  })();
  const results = await Promise.allSettled([long, cut, gone]);
  assert.equal(results[0]!.status, "fulfilled");
  assert.equal((results[1] as PromiseRejectedResult).reason.name, "AbortError");
  assert.equal((results[2] as PromiseRejectedResult).reason.code, "E_DISPOSED");
  const alone = model.session();
  assert.deepEqual(await alone.generate({ prompt: "abc", maxNewTokens: 40, seed: 1 }), await long);
  assert.throws(() => new Batch(model, { rows: 0 }), { code: "E_CONFIG" });
});
