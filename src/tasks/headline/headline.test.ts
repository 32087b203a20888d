import assert from "node:assert/strict";
import { test } from "node:test";
import { openWasm } from "../../device/wasm/open.ts";
import { headline } from "./index.ts";
import { measureMethod, rowOf } from "./measure.ts";
import { type HeadlineModel, headlineMethods, headlineModels, stepCost } from "./methods.ts";

const tiny: HeadlineModel = {
  name: "tiny",
  shape: { height: 4, width: 4, channels: 1 },
  sizes: { width: 32, layers: 2, heads: 2 },
  paper: { linear: 3 },
};

test("every method of the headline measures a small model, whole and integrated", async () => {
  const open = () => openWasm({ threads: 1 });
  const device = await open();
  const machine = { operationsPerSecond: 1e15, bytesPerSecond: 1e15 };
  for (const method of headlineMethods) {
    for (const wholeSeconds of [0, 5]) {
      const limits = { memory: 2 ** 22, wholeSeconds, positionSeconds: 0.005 };
      const done = await measureMethod(method, tiny, device, open, limits);
      const row = rowOf(done, machine, done.seconds / 3);
      assert.ok(Math.abs(row.ratio! - 3) < 1e-9);
      assert.ok(!("ratio" in rowOf(done, machine, undefined)), "linear was not measured");
      assert.equal(row.measured, wholeSeconds === 0 ? "integrated" : "whole");
      assert.ok(row.imagesPerSecond > 0 && row.bytesPerImage > 0);
      assert.ok(row.batch === 1 || row.batch * row.bytesPerImage <= limits.memory);
      assert.ok(
        row.floorShare > 0 && row.floorShare < 0.01,
        "a machine this fast leaves nothing of the share",
      );
      assert.equal(row.paper, method.id === "linear" ? 3 : undefined);
    }
  }
  device.close();
});

test("an image by linear attention costs the same at every place, by softmax more and more", () => {
  const [grey] = headlineModels;
  const at = (id: string, t: number): number => {
    const method = headlineMethods.find((one) => one.id === id)!;
    const { weights, mixing } = stepCost(method, grey!, 30, t, 1);
    return weights.operations + mixing.operations;
  };
  assert.equal(at("linear", 1), at("linear", 784));
  assert.ok(at("softmax-cache", 784) > at("softmax-cache", 1));
  // Twelve squares of the width in eight layers, two operations for each weight, and the state.
  const state = 8 * 8 * (4 * 32 * 32 + 4 * 32);
  assert.equal(at("linear", 5), 2 * (8 * 12 * 256 ** 2 + 256 * 30) + state);
  // Half of the pairs that the whole matrix has, and the diagonal.
  const pairs = (at("softmax-matrix", 784) - at("softmax-tiles", 784)) / (8 * 4 * 256);
  assert.equal(pairs, 784 ** 2 - (784 * 785) / 2);
});

test("an unknown model or method of the headline is refused before anything is opened", async () => {
  const open = () => assert.fail("nothing is to be opened");
  await assert.rejects(headline(open, { models: ["gray"] }).next(), /unknown model "gray"/);
  await assert.rejects(headline(open, { methods: ["gpt"] }).next(), /unknown method "gpt"/);
});
