import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openWasm } from "../../device/wasm/open.ts";
import { Random } from "../../tensor/random.ts";
import { evaluate } from "../../train/loop.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { compareImages } from "./experiment.ts";
import { generateImages } from "./generate.ts";
import type { Images } from "./images.ts";
import { imageTask, type PixelModel } from "./pixel-model.ts";
import { type ImagePreset, imagePresets } from "./presets.ts";
import { createImageRun, openPixelModel } from "./run.ts";

const shape = { height: 4, width: 6, channels: 1 } as const;
const values = 24;
/** Values of the last row, which alone say of which of two classes an image is: dark or bright. */
const telling = 6;
const device = await openWasm({ threads: 1 });

const source = { data: "bars", training: { preset: "quick", seed: 1 } };

/** Rows of noise, and a last one that is bright in every second image. */
function bars(count: number): Images {
  const random = new Random(count).uniform(new Float64Array(count * values));
  const labels = Uint8Array.from({ length: count }, (_, n) => n % 2);
  const pixels = Uint8Array.from({ length: count * values }, (_, i) => {
    const isLast = i % values >= values - telling;
    return (isLast ? labels[Math.floor(i / values)] === 1 : random[i]! < 0.5) ? 220 : 20;
  });
  return { shape, pixels, labels };
}

/** Trains a small model and hands it over before it goes. */
async function trained(use: (model: PixelModel) => Promise<void>): Promise<void> {
  const preset: ImagePreset = {
    ...imagePresets["quick"]!,
    ...{ sizes: { width: 24, layers: 2, heads: 2 }, batch: 12, steps: 300, learningRate: 1e-2, heldOut: 6 },
    ...{ looks: 1, seesNeighbours: false, contenders: { linear: "linear" } },
  };
  const data = { train: bars(200), heldOut: bars(8) };
  for await (const event of compareImages(preset, data, device, { samples: 1, output: "softmax" })) {
    if (event.kind === "end") await use(event.model);
  }
}

test("what is told of a class at every place is known at the last ones after a short training", () =>
  trained(async (model) => {
    const labels = Array.from({ length: 40 }, (_, n) => n % 2);
    const drawn = await generateImages(model, device, { count: labels.length, label: labels, seed: 5 });
    let right = 0;
    for (const [n, label] of labels.entries()) {
      const end = (n + 1) * values;
      for (const value of drawn.pixels.subarray(end - telling, end))
        right += Number(value > 120 === (label === 1));
    }
    assert.ok(
      right >= 0.9 * labels.length * telling,
      `${right} of ${labels.length * telling} are of the class asked for`,
    );

    const held = bars(12);
    const nats = (of: (label: number) => number): Promise<number> =>
      evaluate(imageTask(model, device), device, [model.batchOf(held, Array.from(held.labels!, of))]);
    const [own, other] = [await nats((label) => label), await nats((label) => 1 - label)];
    assert.ok(other > own + 0.3, `told the other class: ${other} nats a value, told its own: ${own}`);
  }));

test("a run of images is opened again and draws the same; others are refused", async () => {
  const path = await mkdtemp(join(tmpdir(), "linnet-images-"));
  try {
    await trained(async (model) => {
      const run = await createImageRun(join(path, "linear"), model, source);
      await run.saveModel(model, 120);
      const options = { count: 3, seed: 9, label: [0, 1, 1] };
      const again = await openPixelModel(join(path, "linear"), device);
      const expected = await generateImages(model, device, options);
      assert.deepEqual((await generateImages(again, device, options)).pixels, expected.pixels);
      await assert.rejects(createImageRun(join(path, "linear"), model, source), /already holds a run/);
    });
    const text = { format: "linnet-run", version: 1, task: "language-modelling", model: {} } as const;
    await RunFolder.create(join(path, "text"), text);
    await assert.rejects(
      openPixelModel(join(path, "text"), device),
      /expected image-generation, got language/,
    );
  } finally {
    await rm(path, { recursive: true });
  }
});
