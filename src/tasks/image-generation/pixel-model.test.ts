import assert from "node:assert/strict";
import { test } from "node:test";
import { noGrad } from "../../autograd/tape.ts";
import { openWasm } from "../../device/wasm/open.ts";
import type { MixerChoice } from "../../models/config.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { compareImages, type ImageRun } from "./experiment.ts";
import { generateImages, PixelStream } from "./generate.ts";
import { countOf, type Images, toSequences } from "./images.ts";
import { PixelModel, type PixelModelConfig } from "./pixel-model.ts";
import { type ImagePreset, imagePresets } from "./presets.ts";

const shape = { height: 4, width: 5, channels: 1 } as const;
const device = await openWasm({ threads: 1 });

function modelOf(pattern: readonly MixerChoice[], more: Partial<PixelModelConfig> = {}): PixelModel {
  const model = new PixelModel({
    ...{ shape, output: "mixture", classes: 3 },
    decoder: { width: 16, layers: 2, heads: 2, pattern, norm: "layer" },
    ...more,
  });
  initialize(model, device, new Random(3));
  return model;
}

/** Stripes that a model can learn: bright every `label + 2` columns. */
function stripes(count: number): Images {
  const labels = Uint8Array.from({ length: count }, (_, n) => n % 3);
  const pixels = Uint8Array.from({ length: count * 20 }, (_, i) => {
    const n = Math.floor(i / 20);
    return (i % 5) % (labels[n]! + 2) === 0 ? 200 + (n % 40) : n % 30;
  });
  return { shape, pixels, labels };
}

test("a completion keeps what was given and draws the rest", async () => {
  const model = modelOf(["linear"]);
  const given = stripes(3);
  const half = await generateImages(model, device, { count: 3, given, seed: 4 });
  for (let n = 0; n < 3; n++) {
    assert.deepEqual(half.pixels.subarray(n * 20, n * 20 + 10), given.pixels.subarray(n * 20, n * 20 + 10));
    assert.notDeepEqual(
      half.pixels.subarray(n * 20 + 10, n * 20 + 20),
      given.pixels.subarray(n * 20 + 10, n * 20 + 20),
    );
  }
  const all = await generateImages(model, device, { count: 3, given, keep: 20 });
  assert.deepEqual(all.pixels, given.pixels);
});

test("in planar order the first half of the sequence is kept, channel after channel", async () => {
  const colour = { height: 2, width: 2, channels: 3 } as const;
  const model = modelOf(["linear"], { shape: colour, channelOrder: "planar", output: "softmax" });
  const given = { shape: colour, pixels: Uint8Array.from({ length: 12 }, (_, i) => 20 * i) };
  const { pixels } = await generateImages(model, device, { count: 2, given, keep: 6 });
  for (let n = 0; n < 2; n++) {
    const own = { shape: colour, pixels: pixels.subarray(12 * n, 12 * n + 12) };
    assert.deepEqual(toSequences(own, "planar").subarray(0, 6), toSequences(given, "planar").subarray(0, 6));
  }
});

test("an image does not depend on how many are made with it", async () => {
  const model = modelOf(["gated-delta", "softmax"]);
  const many = await generateImages(model, device, { count: 5, seed: 8, label: [0, 1, 2, 0, 1] });
  const one = await generateImages(model, device, { count: 1, seed: 8, label: 0 });
  assert.deepEqual(many.pixels.subarray(0, 20), one.pixels);
});

for (const seesNeighbours of [false, true]) {
  test(`steps say what a pass over the whole image says, neighbours told ${seesNeighbours}`, () => {
    for (const mixer of ["linear", "softmax", { id: "softmax", decoding: "matrix" }] as const) {
      const model = modelOf([mixer], { seesNeighbours });
      const batch = model.batchOf(stripes(2));
      const whole = noGrad(() => model.forward(batch, device)).dataSync();
      const stream = new PixelStream(model, device, 2);
      const { width } = model.output;
      for (let t = 0; t < 20; t++) {
        const step = stream.advance(Int32Array.of(batch.tokens[t]!, batch.tokens[20 + t]!));
        for (let n = 0; n < 2; n++) {
          for (let i = 0; i < width; i++) {
            const expected = whole[(n * 20 + t) * width + i]!;
            assert.ok(Math.abs(step[n * width + i]! - expected) < 2e-5, `place ${t}, output ${i}`);
          }
        }
      }
      stream.dispose();
    }
  });
}

test("softmax says the same with its whole matrix, with tiles and with a cache", () => {
  const [expected, ...others] = (["cache", "stateless", "matrix"] as const).map((decoding) => {
    const model = modelOf([{ id: "softmax", decoding }]);
    assert.equal(model.decoder.mixers[0]!.carriesState, decoding === "cache");
    return noGrad(() => model.forward(model.batchOf(stripes(2)), device)).dataSync();
  });
  for (const other of others)
    for (let i = 0; i < expected!.length; i++) assert.ok(Math.abs(other[i]! - expected![i]!) < 2e-5);
});

test("what an image should be is refused when the model cannot make it", async () => {
  const model = modelOf(["linear"]);
  const refuse = (options: Parameters<typeof generateImages>[2], message: RegExp) =>
    assert.rejects(generateImages(model, device, options), { code: "E_CONFIG", message });
  await refuse({ count: 0 }, /count/);
  await refuse({ count: 1, label: 3 }, /class from 0 to 2, got 3/);
  await refuse({ count: 2, label: [1] }, /expected 2, got 1/);
  await refuse({ count: 1, temperature: -1 }, /temperature/);
  await refuse({ count: 3, given: stripes(2) }, /expected 1 or 3 images, got 2/);
  await refuse({ count: 1, given: stripes(1), keep: 21 }, /keep/);
  const other = { shape: { ...shape, height: 3 }, pixels: new Uint8Array(15) };
  await refuse({ count: 1, given: other }, /expected 4 × 5 × 1, got 3 × 5 × 1/);
});

test("an aborted signal ends the drawing with its reason", async () => {
  const signal = AbortSignal.abort(new Error("enough"));
  await assert.rejects(generateImages(modelOf(["linear"]), device, { count: 1, signal }), /enough/);
});

test("contenders learn stripes below the bits of noise and show what they draw", async () => {
  const preset: ImagePreset = {
    ...imagePresets["quick"]!,
    ...{ sizes: { width: 16, layers: 2, heads: 2 }, batch: 12, steps: 60, learningRate: 2e-2, heldOut: 12 },
    ...{ looks: 2, contenders: { linear: "linear", softmax: "softmax" } },
  };
  const data = { train: stripes(60), heldOut: stripes(12) };
  const runs: ImageRun[] = [];
  let looks = 0;
  for await (const event of compareImages(preset, data, device, { samples: 2 })) {
    if (event.kind === "look") {
      looks++;
      assert.equal(countOf(event.samples), 2);
    }
    if (event.kind !== "end") continue;
    runs.push(event.run);
    assert.equal(countOf(event.ofClasses!), 24);
    assert.deepEqual(event.completions.pixels.subarray(0, 20), data.heldOut.pixels.subarray(0, 20));
  }
  assert.deepEqual(
    runs.map((run) => run.name),
    ["linear", "softmax"],
  );
  assert.equal(looks, 2);
  for (const { bits, name } of runs) assert.ok(bits < 6, `${name} needs ${bits} bits of 8`);
});
