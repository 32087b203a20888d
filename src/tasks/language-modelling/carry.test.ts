import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { endlessConfig, endlessIds } from "../../../tests/support/endless-run.ts";
import { backward, noGrad } from "../../autograd/tape.ts";
import { hostDevice } from "../../device/host/host.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { runningWindows } from "../../text/batches.ts";
import { CarriedRows } from "./carry.ts";
import { languageModelling } from "./index.ts";
import { LanguageRun } from "./run.ts";

const config = {
  ...{ vocabularySize: 257, width: 8, layers: 2, heads: 2 },
  pattern: ["gated-delta", "linear"],
  positions: { kind: "rotary" },
} satisfies DecoderConfig;

function fresh(rows: number) {
  const device = hostDevice({ dtype: "float64" });
  const model = new Decoder({ ...config });
  initialize(model, device, new Random(1));
  const carry = new CarriedRows(model, device, rows);
  return { device, model, carry, task: languageModelling(model, device, { carry }) };
}

const context = { training: true, random: new Random(0) };

test("windows with a carried state give the loss of the whole document", () => {
  const { device, model, task, carry } = fresh(2);
  const source = runningWindows(endlessIds, { batch: 2, time: 7 });
  const pieces = [0, 1, 2].map((i) => noGrad(() => task.loss(source(i), context).dataSync()[0]!));
  const whole = runningWindows(endlessIds, { batch: 2, time: 21 })(0);
  const plain = languageModelling(model, device);
  const expected = noGrad(() => plain.loss(whole, context).dataSync()[0]!);
  assert.ok(Math.abs(pieces.reduce((a, b) => a + b) / 3 - expected) < 1e-12);
  // A new pass begins from nothing.
  const again = noGrad(() => task.loss(source(source.stepsPerPass), context).dataSync()[0]!);
  assert.equal(again, pieces[0]);
  assert.equal(carry.tensors["seen"]!.dataSync()[0], 7);
});

test("gradients of a window hold the state it begins with fixed", () => {
  const { device, model, task, carry } = fresh(2);
  const source = runningWindows(endlessIds, { batch: 2, time: 7 });
  noGrad(() => task.loss(source(0), context));
  const kept = new Map(
    Object.entries(carry.tensors).map(([name, part]) => [name, Float32Array.from(part.dataSync())]),
  );
  const lossNow = (): number => {
    carry.restore(kept);
    // Recorded, so that weights are read as they are and not from a packed copy.
    return task.loss(source(1), context).dataSync()[0]!;
  };
  carry.restore(kept);
  backward(task.loss(source(1), context));
  for (const [name, { value }] of model.namedParameters()) {
    const slope = value.grad!.dataSync();
    const before = Float64Array.from(value.dataSync());
    const direction = new Random(2, name).normal(new Float64Array(value.size));
    const at = (epsilon: number): number => {
      device.write(
        value.layout,
        before.map((x, i) => x + epsilon * direction[i]!),
      );
      return lossNow();
    };
    const numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
    device.write(value.layout, before);
    const analytic = direction.reduce((sum, d, i) => sum + d * slope[i]!, 0);
    assert.ok(
      Math.abs(numeric - analytic) < 1e-6 * Math.max(1, Math.abs(analytic)),
      `${name}: ${numeric} ${analytic}`,
    );
  }
});

test("a run with a carried state resumes bit for bit", async () => {
  const path = await mkdtemp(join(tmpdir(), "linnet-carry-"));
  const device = (): ReturnType<typeof hostDevice> => hostDevice({ dtype: "float32" });
  const losses = async (run: LanguageRun, steps: number): Promise<number[]> => {
    const found: number[] = [];
    for await (const { loss, step } of run.train(endlessIds)) {
      found.push(loss);
      if (step === steps) break;
    }
    return found;
  };
  try {
    const options = endlessConfig({ carry: true, saveEvery: 3 });
    const expected = await losses(await LanguageRun.create(join(path, "whole"), options, device()), 9);
    const before = await losses(await LanguageRun.create(join(path, "cut"), options, device()), 5);
    const after = await losses(await LanguageRun.resume(join(path, "cut"), device()), 9);
    assert.deepEqual([...before, ...after], expected);
  } finally {
    await rm(path, { recursive: true });
  }
});

test("a layer that keeps every token is refused, and so is a layer that would run twice", () => {
  const device = hostDevice();
  const model = new Decoder({ ...config, pattern: ["linear", "softmax"] });
  initialize(model, device, new Random(1));
  assert.throws(() => new CarriedRows(model, device, 2), { code: "E_CONFIG", message: /layer 1/ });
  const { task: _, ...job } = fresh(1);
  assert.throws(() => languageModelling(job.model, job.device, { carry: job.carry, recompute: true }), {
    code: "E_CONFIG",
  });
});
