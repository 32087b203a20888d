import assert from "node:assert/strict";
import { test } from "node:test";
import { hostDevice } from "../device/host/host.ts";
import { LanguageModel } from "../generate/language-model.ts";
import { Decoder } from "../models/decoder.ts";
import { initialize } from "../nn/module.ts";
import { Random } from "../tensor/random.ts";
import { bytes } from "../text/bytes.ts";
import { decodeRates } from "./rates.ts";

test("every token is timed after exactly its context, models in turns", () => {
  const device = hostDevice({ dtype: "float32" });
  const modelOf = (id: string): LanguageModel => {
    const model = new Decoder({ vocabularySize: 257, width: 8, layers: 1, heads: 2, pattern: [id] });
    initialize(model, device, new Random(1));
    return new LanguageModel(model, bytes(), device);
  };
  const models = { linear: modelOf("linear"), softmax: modelOf("softmax") };
  const seen: [name: string, context: number][] = [];
  for (const [name, model] of Object.entries(models)) {
    const advance = model.advance.bind(model);
    model.advance = (slots, ids, length) => {
      if (length === 1) seen.push([name, model.states.tokens(slots[0]!)]);
      return advance(slots, ids, length);
    };
  }
  const rows = decodeRates(models, [5, 40]);
  assert.deepEqual(
    rows.map(({ model, context }) => [model, context]),
    [
      ["linear", 5],
      ["linear", 40],
      ["softmax", 5],
      ["softmax", 40],
    ],
  );
  assert.ok(seen.every(([, context]) => context === 5 || context === 40));
  const turns = seen.filter(([name], i) => name !== seen[i - 1]?.[0]).length;
  assert.ok(turns > 8, `${turns} turns`);
  const [linear5, linear40, softmax5, softmax40] = rows.map(({ stateBytes }) => stateBytes);
  assert.equal(linear5, linear40);
  assert.equal(softmax40, 8 * softmax5!);
  assert.ok(rows.every(({ microseconds }) => microseconds > 0));
  assert.deepEqual([models.linear.taken, models.softmax.taken], [0, 0]);
});
