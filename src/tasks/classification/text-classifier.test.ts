import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { hostDevice } from "../../device/host/host.ts";
import { Classifier } from "../../models/classifier.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { bytes } from "../../text/bytes.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { scoreClassifier, textBatch } from "./index.ts";
import { type ClassificationRunConfig, openTextClassifier } from "./text-classifier.ts";

const labels = ["calm", "rough", "unknown"];
const config: ClassificationRunConfig = {
  ...{ format: "linnet-run", version: 1, task: "classification", text: "seas" },
  ...{ labels, time: 8, tokenizer: bytes().toJSON() },
  model: { vocabularySize: 257, width: 8, layers: 1, heads: 2, pattern: ["linear"], classes: 3 },
};

test("a classifier that is opened again labels every text as it did, whatever stands beside it", async () => {
  const path = await mkdtemp(join(tmpdir(), "linnet-labels-"));
  try {
    const device = hostDevice({ dtype: "float64" });
    const model = new Classifier({ ...config.model, initDeviation: 0.7 });
    initialize(model, device, new Random(1));
    const folder = await RunFolder.create(join(path, "run"), config);
    await folder.saveModel(model, 3);
    const opened = await openTextClassifier(join(path, "run"), hostDevice({ dtype: "float64" }));
    const texts = Array.from({ length: 20 }, (_, i) => "a sea of whales and ships".slice(i % 7, 8 + i));
    const found = await opened.label(texts);
    for (const [i, text] of texts.entries()) {
      const batch = textBatch([{ ids: bytes().encode(text), label: labels.indexOf(found[i]!.label) }], 8);
      // Nats of the label that was found are what its probability says, up to weights kept in float32.
      const { nats, accuracy } = await scoreClassifier(model, device, [batch]);
      assert.ok(Math.abs(Math.exp(-nats) - found[i]!.probability) < 1e-6, text);
      assert.equal(accuracy, 1);
      const sum = Object.values(found[i]!.probabilities).reduce((a, b) => a + b);
      assert.ok(Math.abs(sum - 1) < 1e-12);
      assert.deepEqual(Object.keys(found[i]!.probabilities), labels);
    }
    const whole = await opened.label(["a sea of whales", "a sea of ships"]);
    assert.deepEqual(whole[0], whole[1], "texts are read as far as training read them");
    await assert.rejects(opened.label(["a sea", ""]), { code: "E_CONFIG", message: /in text 1/ });
    const aborted = { signal: AbortSignal.abort() };
    await assert.rejects(opened.label(["a sea"], aborted), { name: "AbortError" });
  } finally {
    await rm(path, { recursive: true });
  }
});

test("a folder without a classifier is refused, and so is one whose weights were changed", async () => {
  const path = await mkdtemp(join(tmpdir(), "linnet-labels-"));
  try {
    const device = hostDevice({ dtype: "float32" });
    await RunFolder.create(join(path, "text"), { ...config, task: "language-modelling" });
    const other = { code: "E_FORMAT", message: /expected classification, got language-modelling/ };
    await assert.rejects(openTextClassifier(join(path, "text"), device), other);
    const model = new Classifier(config.model);
    initialize(model, device, new Random(1));
    const folder = await RunFolder.create(join(path, "run"), config);
    await folder.saveModel(model, 1);
    const file = await readFile(folder.file("model"));
    file[file.length - 2]! ^= 1;
    await writeFile(folder.file("model"), file);
    await assert.rejects(openTextClassifier(join(path, "run"), device), { message: /checksum/ });
  } finally {
    await rm(path, { recursive: true });
  }
});
