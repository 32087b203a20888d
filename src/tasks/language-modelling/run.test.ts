import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { convMechanism } from "../../../tests/support/conv-mechanism.ts";
import { hostDevice } from "../../device/host/host.ts";
import { LanguageModel } from "../../generate/language-model.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { randomWindows } from "../../text/batches.ts";
import { bytes } from "../../text/bytes.ts";
import { train } from "../../train/loop.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { languageModelling } from "./index.ts";

const text = "the whale and the sea and the ship and the whale. ".repeat(20);
const config = {
  vocabularySize: 257,
  width: 16,
  layers: 2,
  heads: 2,
  pattern: [convMechanism],
  dropout: 0.1,
} as const;

function fresh() {
  const device = hostDevice({ dtype: "float32" });
  const model = new Decoder({ ...config });
  initialize(model, device, new Random(1));
  const make = () =>
    new Optimizer(adamW(), model.namedParameters(), { learningRate: 5e-3, weightDecay: 0.1, clip: 1 });
  const batches = randomWindows(bytes().encode(text), { batch: 2, time: 12 }, new Random(3));
  return { device, model, make, task: languageModelling(model, device), batches };
}

async function losses(job: ReturnType<typeof fresh>, optimizer: Optimizer, from: number, steps: number) {
  const { device, task, batches } = job;
  const found: number[] = [];
  for await (const step of train(task, { device, batches, optimizer, from, steps })) found.push(step.loss);
  return found;
}

test("training lowers the loss and holds no memory from step to step", async () => {
  const job = fresh();
  const optimizer = job.make();
  const first = await losses(job, optimizer, 1, 10);
  const { persistent } = job.device.info().bytes;
  const later = await losses(job, optimizer, 11, 40);
  assert.equal(job.device.info().bytes.persistent, persistent);
  assert.ok(later.at(-1)! < first[0]! - 1, `${first[0]} to ${later.at(-1)}`);
});

test("a run resumes bit for bit, also after its metrics ran ahead of its save", async () => {
  const path = await mkdtemp(join(tmpdir(), "linnet-run-"));
  try {
    const whole = fresh();
    const expected = await losses(whole, whole.make(), 1, 8);
    const job = fresh();
    const folder = await RunFolder.create(join(path, "run"), {
      format: "linnet-run",
      version: 1,
      task: "test",
      model: {},
    });
    const optimizer = job.make();
    const before = await losses(job, optimizer, 1, 5);
    await folder.log([1, 2, 3, 4, 5, 6].map((step) => ({ step })));
    await folder.save({ module: job.model, optimizer, step: 5, seconds: 1 });
    const again = fresh();
    const opened = await RunFolder.open(join(path, "run"));
    const { optimizer: restored, step } = await opened.resume(again.model, again.make, again.device);
    assert.equal((await opened.metrics()).length, 5);
    const after = await losses(again, restored, step + 1, 8);
    assert.deepEqual([...before, ...after], expected);
    const bytesOfModel = await readFile(opened.file("model"));
    bytesOfModel[bytesOfModel.length - 3]! ^= 1;
    await writeFile(opened.file("model"), bytesOfModel);
    await assert.rejects(opened.loadModel(again.model, again.device), {
      code: "E_FORMAT",
      message: /checksum/,
    });
    await assert.rejects(RunFolder.create(join(path, "run"), opened.config), { code: "E_FORMAT" });
  } finally {
    await rm(path, { recursive: true });
  }
});

test("steps that are not finite move nothing, are counted, and end the run when they do not stop", async () => {
  const job = fresh();
  const optimizer = job.make();
  const before = [...job.model.parameters()[0]!.value.dataSync()];
  const { device, task, batches } = job;
  const broken = {
    ...task,
    loss: (...args: Parameters<typeof task.loss>) => {
      const loss = task.loss(...args);
      device.write(loss.layout, Float32Array.of(Number.NaN));
      return loss;
    },
  };
  let skips = 0;
  await assert.rejects(
    async () => {
      for await (const step of train(broken, { device, batches, optimizer, steps: 100 })) skips = step.skips;
    },
    { code: "E_NUMERICS" },
  );
  assert.equal(skips, 49);
  assert.deepEqual([...job.model.parameters()[0]!.value.dataSync()], before);
});

test("recomputed layers give the same gradients", async () => {
  const kept = fresh();
  const recomputed = fresh();
  const task = languageModelling(recomputed.model, recomputed.device, { recompute: true });
  assert.deepEqual(
    await losses({ ...recomputed, task }, recomputed.make(), 1, 4),
    await losses(kept, kept.make(), 1, 4),
  );
});

test("sessions continue, fork, roll back, save and load; pieces join to the whole", async () => {
  const { device, model } = fresh();
  const lm = new LanguageModel(model, bytes(), device);
  const session = lm.session();
  await session.prefill("the whale", { chunk: 2 });
  const whole = lm.session();
  await whole.prefill("the whale");
  for (const [i, value] of whole.logits!.entries()) assert.ok(Math.abs(value - session.logits![i]!) < 1e-5);
  const mark = session.checkpoint();
  const options = { maxNewTokens: 12, temperature: 1, seed: 4 };
  const twin = session.fork();
  const saved = await session.save();
  const first = await session.generate(options);
  session.rollback(mark);
  const pieces: string[] = [];
  for await (const piece of session.generate(options)) pieces.push(piece.text);
  assert.equal(pieces.join(""), first.text);
  assert.deepEqual((await twin.generate(options)).ids, first.ids);
  const other = lm.session();
  other.load(saved);
  assert.deepEqual((await other.generate(options)).ids, first.ids);
  assert.throws(() => other.load(saved.slice(0, 100)), { code: "E_FORMAT" });
  const stopped = await session
    .fork()
    .generate({ ...options, maxNewTokens: 5, stop: first.text.slice(0, 0) });
  assert.equal(stopped.finishReason, "length");
  session.dispose();
  assert.throws(() => session.step(1), { code: "E_DISPOSED" });
});
