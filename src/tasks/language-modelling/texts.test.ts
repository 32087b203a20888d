import assert from "node:assert/strict";
import { test } from "node:test";
import { hostDevice } from "../../device/host/host.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { bytes } from "../../text/bytes.ts";
import { languageModelling } from "./index.ts";
import { batchesOf, scoreHeldOut, tokenizeDocuments } from "./texts.ts";
import { trainingOptions } from "./training.ts";

const texts = ["the whale", "a sea", "the old ship sails", "deep", "calm water"];

async function* pieces() {
  for (const [i, text] of texts.entries()) {
    yield { name: `${i}`, text: text.slice(0, 2), ends: false };
    yield { name: `${i}`, text: text.slice(2), ends: true };
  }
}

test("documents keep their ends, and the last ones are held out", async () => {
  const text = await tokenizeDocuments(pieces(), bytes(), 0.4);
  assert.equal(text.documents.documents, 3);
  assert.equal(text.heldOutDocuments.documents, 2);
  const ids = text.documents.document(2);
  assert.equal(bytes().decode(ids), texts[2]);
  assert.equal(ids.at(-1), bytes().separator);
  assert.equal(text.documents.documentLength!(2), ids.length);
  assert.equal(bytes().decode(text.heldOutDocuments.document(1)), "calm water");
  const one = async function* () {
    yield { name: "a", text: "the whale", ends: true };
  };
  await assert.rejects(tokenizeDocuments(one(), bytes(), 0.1), { code: "E_CONFIG" });
});

test("held-out documents are scored as they are trained on: every token once, padding not at all", async () => {
  const device = hostDevice({ dtype: "float64" });
  const config = { vocabularySize: 257, width: 8, layers: 1, heads: 2, pattern: ["linear"] } as const;
  const model = new Decoder({ ...config, initDeviation: 0.5 });
  initialize(model, device, new Random(1));
  const task = languageModelling(model, device);
  const text = await tokenizeDocuments(pieces(), bytes(), 0.4);
  const natsOf = (ids: Int32Array): number => {
    const batch = { inputs: ids.slice(0, -1), targets: ids.slice(1), batch: 1, time: ids.length - 1 };
    return task.loss(batch, { training: false, random: new Random(0) }).dataSync()[0]! * (ids.length - 1);
  };
  const held = [0, 1].map((i) => text.heldOutDocuments.document(i));
  const score = (time: number, documents: "rows" | "packed") => {
    const training = trainingOptions({ batch: 2, time, documents });
    return scoreHeldOut(text, task, device, bytes(), training);
  };
  const whole = await score(16, "packed");
  const nats = natsOf(held[0]!) + natsOf(held[1]!);
  assert.equal(whole.tokens, 4 + 10);
  assert.ok(Math.abs(whole.nats * 14 - nats) < 1e-9);
  // The first byte of each is not predicted, its end is.
  assert.ok(Math.abs(whole.bitsPerByte - nats / Math.LN2 / (3 + 9)) < 1e-9);
  const rows = await score(6, "rows");
  assert.equal(rows.tokens, 4 + 6);
  assert.ok(Math.abs(rows.nats * 10 - natsOf(held[0]!) - natsOf(held[1]!.subarray(0, 7))) < 1e-9);
  const pieces6 = await score(6, "packed");
  assert.equal(pieces6.tokens, 14);
});

test("batches are what the training asks for", async () => {
  const text = await tokenizeDocuments(pieces(), bytes(), 0.4);
  const rows = batchesOf(text, trainingOptions({ batch: 3, time: 5, documents: "rows" }))(0);
  assert.deepEqual([rows.batch, rows.time, rows.mask!.length], [3, 5, 15]);
  const packed = batchesOf(text, trainingOptions({ batch: 3, time: 5, documents: "packed" }))(0);
  assert.deepEqual([packed.batch, packed.time], [1, 15]);
  assert.equal(packed.cuSeqlens!.at(-1), 15);
  assert.throws(() => trainingOptions({ documents: "rows", carry: true }), { code: "E_CONFIG" });
});
