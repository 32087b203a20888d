import assert from "node:assert/strict";
import { test } from "node:test";
import { openWasm } from "../../device/wasm/open.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { randomWindows, runningWindows } from "../../text/batches.ts";
import { WeightAverage } from "../../train/average.ts";
import { train } from "../../train/loop.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import { CarriedRows } from "./carry.ts";
import { languageModelling } from "./index.ts";

const ids = new Random(3).integers(new Int32Array(4000), 0, 64);
const shape = { batch: 2, time: 32 };

for (const [name, rule, pattern, isCarried] of [
  ["adamw", adamW, ["gated-delta", "softmax"], false],
  ["muon", muon, ["gla", "linear"], true],
] as const) {
  test(`after step 10 training with ${name} takes no memory that it did not have`, async () => {
    const device = await openWasm({ threads: 2 });
    try {
      const model = new Decoder({
        vocabularySize: 64,
        width: 32,
        layers: 2,
        heads: 2,
        pattern: [...pattern],
      });
      initialize(model, device, new Random(1));
      const carry = isCarried ? { carry: new CarriedRows(model, device, shape.batch) } : {};
      const task = languageModelling(model, device, carry);
      const average = new WeightAverage(model, 0.9);
      const optimizer = new Optimizer(rule(), model.namedParameters(), { learningRate: 1e-3, clip: 1 });
      const batches = isCarried ? runningWindows(ids, shape) : randomWindows(ids, shape, new Random(2));
      let first: ReturnType<typeof device.info> | undefined;
      for await (const { step } of train(task, { device, optimizer, average, batches, steps: 40 })) {
        const now = device.info();
        if (step === 10) first = now;
        if (first === undefined) continue;
        assert.deepEqual(now.bytes, first.bytes, `step ${step}`);
        // The loss is what a step leaves to its reader.
        assert.ok(now.allocations - first.allocations <= step - 10, `step ${step}`);
      }
    } finally {
      device.close();
    }
  });
}
