import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { hostDevice } from "../device/host/host.ts";
import { openWasm } from "../device/index.ts";
import { Classifier } from "../models/classifier.ts";
import { Decoder } from "../models/decoder.ts";
import { MaskedModel } from "../models/masked-model.ts";
import { initialize } from "../nn/module.ts";
import { Random } from "../tensor/random.ts";
import { bytes } from "../text/bytes.ts";
import { documentRows, documentsOf, packedDocuments } from "../text/document-batches.ts";
import { train } from "../train/loop.ts";
import { adamW } from "../train/optimizers/adam.ts";
import { Optimizer } from "../train/optimizers/optimizer.ts";
import { classification, evaluationTexts, labelledBatches, scoreClassifier } from "./classification/index.ts";
import { Tally } from "./comparison/score.ts";
import { experiments } from "./experiments.ts";
import { languageModelling } from "./language-modelling/index.ts";
import { maskedTokens, maskedWindows, maskTokens, scoreMasked } from "./masked-tokens/index.ts";

test("a tally is the mean of what is asked", () => {
  const tally = new Tally();
  tally.add([0, 0, 1, 2], 2, [1, -100]);
  tally.add([0, Math.log(3)], 2, [1]);
  const { nats, accuracy } = tally.score;
  assert.ok(Math.abs(nats - (Math.log(2) + Math.log(4 / 3)) / 2) < 1e-12);
  assert.equal(accuracy, 0.5);
});

test("masking asks for its share of every row and leaves the rest as it was", () => {
  const inputs = Int32Array.from({ length: 4 * 200 }, (_, i) => i % 50);
  const options = { maskId: 60, vocabularySize: 50 };
  const { inputs: hidden, targets } = maskTokens({ inputs, batch: 4, time: 200 }, options, new Random(1));
  const counts = { masked: 0, other: 0, same: 0 };
  for (const [i, target] of targets.entries()) {
    if (target === -100) assert.equal(hidden[i], inputs[i]);
    else {
      assert.equal(target, inputs[i]);
      counts[hidden[i] === 60 ? "masked" : hidden[i] === inputs[i] ? "same" : "other"]++;
    }
  }
  for (let b = 0; b < 4; b++)
    assert.equal(targets.subarray(b * 200, (b + 1) * 200).filter((target) => target !== -100).length, 30);
  assert.ok(
    counts.masked > 84 && counts.masked < 108 && counts.other >= 4 && counts.same >= 4,
    JSON.stringify(counts),
  );
  const one = maskTokens({ inputs: Int32Array.of(3), batch: 1, time: 1 }, options, new Random(1));
  assert.deepEqual([...one.targets], [3]);
  assert.throws(() => maskTokens({ inputs, batch: 4, time: 200 }, { ...options, share: 0 }, new Random(1)), {
    code: "E_CONFIG",
  });
});

test("a masked model learns what is hidden from both sides", async () => {
  const device = await openWasm({ threads: 1 });
  const config = { width: 32, layers: 1, heads: 2, positions: { kind: "rotary" } } as const;
  const model = new MaskedModel({ ...config, vocabularySize: 258, pattern: ["softmax"] });
  initialize(model, device, new Random(1));
  const ids = bytes().encode("abcdefgh".repeat(40));
  const masking = { maskId: 257, vocabularySize: 257 };
  const batches = maskedWindows(ids, { batch: 8, time: 16 }, masking, new Random(2));
  assert.deepEqual(batches(3), batches(3));
  assert.notDeepEqual(batches(3), batches(4));
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-2, clip: 1 });
  const before = await scoreMasked(model, device, [batches(1000)]);
  for await (const { step } of train(maskedTokens(model, device), { device, batches, optimizer, steps: 200 }))
    assert.ok(step <= 200);
  const after = await scoreMasked(model, device, [batches(1000)]);
  assert.ok(after.nats < before.nats / 3 && after.accuracy > 0.5, JSON.stringify([before, after]));
  device.close();
});

test("a classifier learns labels and its score is that of every text once", async () => {
  const device = hostDevice({ dtype: "float32" });
  const config = { width: 16, layers: 1, heads: 2, vocabularySize: 257 } as const;
  const model = new Classifier({ ...config, pattern: ["linear"], classes: 2 });
  initialize(model, device, new Random(1));
  const random = new Random(4);
  const items = Array.from({ length: 40 }, (_, i) => {
    const letters = random.integers(new Int32Array(3 + (i % 9)), 97, 107);
    // Label 1 has an x somewhere.
    if (i % 2 === 1) letters[i % letters.length] = 120;
    return { ids: letters, label: i % 2 };
  });
  const batches = labelledBatches(items.slice(0, 30), { batch: 8, time: 10 }, new Random(5));
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-2 });
  for await (const { step } of train(classification(model, device), {
    device,
    batches,
    optimizer,
    steps: 60,
  }))
    assert.ok(step > 0);
  const scored = evaluationTexts(items.slice(30), { batch: 4, time: 10 });
  assert.deepEqual(
    scored.map(({ batch }) => batch),
    [4, 4, 2],
  );
  const { accuracy } = await scoreClassifier(model, device, scored);
  assert.ok(accuracy >= 0.9, `${accuracy}`);
  assert.throws(
    () => labelledBatches([{ ids: new Int32Array(0), label: 0 }], { batch: 1, time: 4 }, random),
    {
      code: "E_CONFIG",
    },
  );
});

test("experiments have contenders, and those with data say what they read", async () => {
  assert.deepEqual(experiments.map(({ id }) => id).sort(), [
    "classification",
    "copy",
    "induction",
    "masked",
    "mqar",
    "reverse",
  ]);
  for (const { presets } of experiments)
    for (const name of ["quick", "paper"]) assert.ok(presets[name]!.contenders.length > 1, name);
  const folder = await mkdtemp(join(tmpdir(), "linnet-labels-"));
  try {
    for (const label of ["ham", "spam"]) {
      await mkdir(join(folder, label));
      for (let i = 0; i < 6; i++)
        await writeFile(join(folder, label, `${i}.txt`), `${label} ${label} number ${i}`);
    }
    const device = hostDevice({ dtype: "float32" });
    const lines: string[] = [];
    const controller = new AbortController();
    const { run } = experiments.find(({ id }) => id === "classification")!;
    const steps: number[] = [];
    await assert.rejects(
      async () => {
        const options = { path: folder, say: (line: string) => lines.push(line), signal: controller.signal };
        for await (const _ of run("quick", device, {
          ...{ ...options, seeds: [1], only: ["linear"] },
          onStep: ({ step }) => {
            steps.push(step);
            if (step === 2) controller.abort();
          },
        }));
      },
      { name: "AbortError" },
    );
    assert.deepEqual(steps, [1, 2]);
    assert.match(lines.join("\n"), /12 texts \(ham 6, spam 6\), 2 of them held out\n.*right for 50\.0 %/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("documents packed, padded or alone have the same loss", () => {
  const device = hostDevice({ dtype: "float64" });
  const config = {
    vocabularySize: 30,
    width: 8,
    layers: 2,
    heads: 2,
    positions: { kind: "sinusoidal" },
  } as const;
  const model = new Decoder({ ...config, pattern: ["gated-delta", "softmax"] });
  initialize(model, device, new Random(1));
  const documents = [5, 3, 7].map((length, d) => Int32Array.from({ length }, (_, i) => 9 * d + i + 1));
  const task = languageModelling(model, device);
  const lossOf = (batch: Parameters<typeof task.loss>[0]): number => {
    const loss = task.loss(batch, { training: true, random: new Random(0) });
    return loss.dataSync()[0]!;
  };
  const alone = documents.map((ids) => ({
    nats: lossOf({ inputs: ids.slice(0, -1), targets: ids.slice(1), batch: 1, time: ids.length - 1 }),
    count: ids.length - 1,
  }));
  const total = alone.reduce((sum, { nats, count }) => sum + nats * count, 0) / 12;
  const packed = packedDocuments(documentsOf(documents), 12, new Random(2))(0);
  assert.ok(Math.abs(lossOf(packed) - total) < 1e-12, "packed");
  const rows = documentRows(documentsOf(documents), { batch: 6, time: 9 }, new Random(3))(0);
  const drawn = Array.from(
    { length: 6 },
    (_, b) => alone[Math.floor((rows.inputs[b * rows.time]! - 1) / 9)]!,
  );
  const expected =
    drawn.reduce((sum, { nats, count }) => sum + nats * count, 0) /
    drawn.reduce((sum, { count }) => sum + count, 0);
  assert.ok(Math.abs(lossOf(rows) - expected) < 1e-12, "rows");
});
