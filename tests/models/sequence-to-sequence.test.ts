/** An encoder and a decoder joined: what is read, what is not, and that it learns and writes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { gradCheck } from "../../src/autograd/grad-check.ts";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/index.ts";
import { translate } from "../../src/generate/translate.ts";
import type { MixerChoice } from "../../src/models/config.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { SequenceToSequence } from "../../src/models/sequence-to-sequence.ts";
import { initialize } from "../../src/nn/module.ts";
import { pairBatch, scorePairs, sequenceToSequence } from "../../src/tasks/sequence-to-sequence/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { train } from "../../src/train/loop.ts";
import { adamW } from "../../src/train/optimizers/adam.ts";
import { Optimizer } from "../../src/train/optimizers/optimizer.ts";
import { cosineSchedule } from "../../src/train/schedules.ts";

const device = hostDevice({ dtype: "float64", poison: true });
const ints = (values: readonly number[], shape: readonly number[]): Tensor =>
  tensor(device, values, shape, { dtype: "int32" });
const readers: readonly MixerChoice[] = ["softmax", "linear", "performer", "cosine"];

function modelOf(cross: MixerChoice, decoder: MixerChoice = "gated-delta", layers = 2): SequenceToSequence {
  const half = { vocabularySize: 13, width: 8, layers, heads: 2, positions: { kind: "sinusoidal" } } as const;
  const model = new SequenceToSequence({
    encoder: { ...half, pattern: ["softmax"], norm: "layer" },
    decoder: { ...half, pattern: [decoder], cross },
  });
  initialize(model, device, new Random(1));
  return model;
}

function near(got: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  assert.equal(got.length, expected.length, what);
  for (let i = 0; i < expected.length; i++)
    assert.ok(
      Math.abs(got[i]! - expected[i]!) <= 1e-12,
      `${what}: ${got[i]} at ${i}, expected ${expected[i]}`,
    );
}

const run = (fn: () => Tensor): number[] => scope(device, () => noGrad(() => [...fn().dataSync()]));

test("padding of source and target is read by nobody, left or right", () => {
  for (const cross of readers) {
    const model = modelOf(cross);
    const what = JSON.stringify(cross);
    const alone = run(() => model.forward(ints([1, 2, 3], [1, 3]), ints([4, 5], [1, 2])).logits);
    const other = run(
      () => model.forward(ints([6, 7, 8, 9, 10], [1, 5]), ints([11, 12, 1, 2], [1, 4])).logits,
    );
    for (const side of ["left", "right"]) {
      const row = (values: number[], pad: number[]) =>
        side === "left" ? [...pad, ...values] : [...values, ...pad];
      const got = run(
        () =>
          model.forward(
            ints([6, 7, 8, 9, 10, ...row([1, 2, 3], [12, 12])], [2, 5]),
            ints([11, 12, 1, 2, ...row([4, 5], [7, 7])], [2, 4]),
            {
              sourceMask: ints([1, 1, 1, 1, 1, ...row([1, 1, 1], [0, 0])], [2, 5]),
              mask: ints([1, 1, 1, 1, ...row([1, 1], [0, 0])], [2, 4]),
            },
          ).logits,
      );
      near(got.slice(0, 52), other, `${what} ${side} full row`);
      const from = side === "left" ? 78 : 52;
      near(got.slice(from, from + 26), alone, `${what} ${side}`);
    }
    model.dispose();
  }
});

test("a decoder sees every token of its memory and none behind it of its own", () => {
  for (const cross of readers) {
    const model = modelOf(cross);
    const logits = (source: number[], target: number[]) =>
      run(() => model.forward(ints(source, [1, 3]), ints(target, [1, 3])).logits);
    const base = logits([1, 2, 3], [4, 5, 6]);
    const memory = logits([1, 2, 4], [4, 5, 6]);
    assert.ok(
      base.slice(0, 13).some((value, i) => Math.abs(value - memory[i]!) > 1e-9),
      "the first token reads the last",
    );
    const later = logits([1, 2, 3], [4, 5, 7]);
    near(later.slice(0, 26), base.slice(0, 26), "earlier tokens");
    model.dispose();
  }
});

test("gradients reach the encoder through the memory, recomputed or not", () => {
  for (const cross of readers)
    for (const recompute of [false, true]) {
      const model = modelOf(cross, "softmax", 1);
      const memory = tensor(device, new Random(3).normal(new Float64Array(2 * 4 * 8)), [2, 4, 8], {
        requiresGrad: true,
      });
      const memoryMask = ints([1, 1, 1, 1, 0, 0, 1, 1], [2, 4]);
      const rows = gradCheck(
        device,
        (inputs) => ({
          y: model.decoder.loss(ints([1, 2, 3, 4, 5, 6], [2, 3]), ints([2, 3, 4, 5, 6, -100], [2, 3]), {
            ...{ memory: inputs["memory"]!, memoryMask, training: true, recompute },
          }),
        }),
        { memory },
        (stream, i) => Math.cos(17 * stream + 3 * i),
        1e-5,
      );
      for (const row of rows) assert.ok(row.relativeError <= 1e-6, `${String(cross)} ${JSON.stringify(row)}`);
      assert.ok(
        memory
          .grad!.dataSync()
          .slice(32, 48)
          .every((value) => value === 0),
        "padding has no gradient",
      );
      model.dispose();
    }
});

test("a memory goes with a decoder that reads one", () => {
  const half = { vocabularySize: 13, width: 8, layers: 1, heads: 2 };
  const plain = new Decoder({ ...half, pattern: ["softmax"] });
  const reading = new Decoder({ ...half, pattern: ["softmax"], cross: "linear" });
  for (const model of [plain, reading]) initialize(model, device, new Random(1));
  const tokens = ints([1, 2], [1, 2]);
  const memory = tensor(device, new Float64Array(16), [1, 2, 8]);
  assert.throws(() => plain.forward(tokens, { memory }), {
    code: "E_CONFIG",
    message: /expected no memory, got one/,
  });
  assert.throws(() => reading.forward(tokens), { code: "E_CONFIG", message: /expected a memory, got none/ });
  assert.throws(() => new Decoder({ ...half, pattern: ["softmax"], cross: "gla" }), {
    code: "E_CONFIG",
    message: /gla sees only what came before/,
  });
  assert.throws(() => modelOf("nystrom").forward(tokens, tokens, { sourceMask: ints([1, 0], [1, 2]) }), {
    code: "E_UNSUPPORTED",
  });
  const encoder = { ...half, width: 16, pattern: ["softmax"] };
  assert.throws(() => new SequenceToSequence({ encoder, decoder: { ...half, pattern: ["softmax"] } }), {
    code: "E_CONFIG",
    message: /equal widths, got 16 and 8/,
  });
});

test("a model learns to turn words round and writes them token by token", async () => {
  const half = {
    vocabularySize: 8,
    width: 32,
    layers: 1,
    heads: 4,
    positions: { kind: "sinusoidal" },
  } as const;
  const device = await openWasm({ threads: 1 });
  const model = new SequenceToSequence({
    encoder: { ...half, pattern: ["softmax"] },
    decoder: { ...half, pattern: ["gated-delta"], cross: "softmax" },
  });
  initialize(model, device, new Random(2));
  const frame = { begin: 0, end: 1 };
  const drawPair = (random: Random) => {
    const source = random.integers(new Int32Array(1 + random.integers(new Int32Array(1), 0, 4)[0]!), 2, 8);
    return { source, target: Int32Array.from(source).reverse() };
  };
  const batches = (index: number) => {
    const random = new Random(7, `pairs ${index}`);
    return pairBatch(
      Array.from({ length: 32 }, () => drawPair(random)),
      frame,
    );
  };
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-2, clip: 1 });
  const task = sequenceToSequence(model, device);
  const schedule = cosineSchedule({ steps: 200, warmup: 10 });
  const losses: number[] = [];
  for await (const { loss } of train(task, { device, batches, optimizer, steps: 200, schedule }))
    losses.push(loss);
  assert.ok(losses.at(-1)! < 0.35 * losses[0]!, `${losses[0]} to ${losses.at(-1)}`);
  const held = new Random(8, "held");
  const pairs = Array.from({ length: 24 }, () => drawPair(held));
  const written = translate(
    model,
    pairs.map(({ source }) => source),
    { ...frame, maxNewTokens: 8 },
  );
  const right = written.filter((ids, i) => ids.join() === pairs[i]!.target.join()).length;
  assert.ok(right >= 16, `${right} of 24 are right`);
  const { accuracy } = await scorePairs(model, device, [pairBatch(pairs, frame)]);
  assert.ok(accuracy >= 0.8, `accuracy ${accuracy}`);
  // Written one at a time, they are what they are side by side.
  for (const [i, { source }] of pairs.slice(0, 4).entries())
    assert.deepEqual(translate(model, [source], { ...frame, maxNewTokens: 8 }), [written[i]]);
  assert.throws(() => translate(model, [[]], frame), { code: "E_CONFIG" });
  device.close();
});
