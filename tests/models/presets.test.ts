/** The published models as data: their sizes are the published ones, and their small twins work. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { preset, presets } from "../../src/models/presets/index.ts";
import { modelSize } from "../../src/models/size.ts";
import { initialize } from "../../src/nn/module.ts";
import { languageModelling } from "../../src/tasks/language-modelling/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { train } from "../../src/train/loop.ts";
import { adamW } from "../../src/train/optimizers/adam.ts";
import { Optimizer } from "../../src/train/optimizers/optimizer.ts";

/** Weights in billions as they were published, and how far a count rounded like that may be off. */
const published: Readonly<Record<string, readonly [billions: number, slack: number, why: string]>> = {
  "minimax-text-01": [456, 0.5, "456 billion parameters (arXiv 2501.08313v1, abstract)"],
  "qwen3-next": [80, 0.5, "80B in total (the model's card); without its head for two tokens ahead"],
  "kimi-linear": [
    48,
    1.5,
    "48B in total (arXiv 2510.26692v2, abstract; the released files hold 49.1 billion numbers)",
  ],
  mamba2: [1.3, 0.05, "1.3B (arXiv 2405.21060v1, table 1)"],
  gla: [1.3, 0.1, "1.3B (arXiv 2312.06635v6, section 5.1)"],
  transformer: [1.3, 0.1, "1.3B (arXiv 2312.06635v6, section 5.1)"],
  "delta-net": [1.3, 0.1, "1.3B (arXiv 2406.06484v6, section 5)"],
  "gated-delta-net": [1.3, 0.1, "1.3B (arXiv 2412.06464v3, section 4)"],
  retnet: [1.3, 0.15, "1.3B (arXiv 2307.08621v4, table 2)"],
  // 8 layers of 12·D² weights, their norms and biases, and two tables: computed by hand below.
  "linear-transformer": [0.00644, 0.00001, "8 layers, 8 heads of 32 (arXiv 2006.16236v3, section 4.2.1)"],
};

test("published presets have the published numbers of weights", () => {
  assert.deepEqual(Object.keys(published).sort(), presets.map(({ id }) => id).sort());
  for (const { id, published: config } of presets) {
    const [billions, slack, why] = published[id]!;
    const { parameters } = modelSize(config);
    assert.ok(Math.abs(parameters / 1e9 - billions) <= slack, `${id} has ${parameters}, expected ${why}`);
  }
});

test("weights of the transformers are those of the formula", () => {
  const [D, L, F, V] = [2048, 24, 5632, 32_000];
  const plain = L * (4 * D * D + 3 * D * F + 2 * D) + D + 2 * V * D;
  assert.equal(modelSize(preset("transformer").published).parameters, plain);
  const d = 256;
  const attention = 4 * d * d;
  const feeding = 2 * 4 * d * d + 4 * d + d;
  const linear = 8 * (attention + feeding + 2 * 2 * d) + 2 * d + 2 * 257 * d;
  assert.equal(modelSize(preset("linear-transformer").published).parameters, linear);
});

test("what presets carry is what their shapes say", () => {
  const bytes = (id: string) => modelSize(preset(id).published);
  // Softmax: keys and values of 2048 floats in 24 layers.
  assert.deepEqual(
    [bytes("transformer").stateBytes, bytes("transformer").cacheBytesPerToken],
    [0, 4 * 24 * 2 * 2048],
  );
  // Qwen3-Next: 12 softmax layers with 2 heads of 256 for keys and values; 36 states of 32 × 128 × 128 and convolutions.
  assert.equal(bytes("qwen3-next").cacheBytesPerToken, 4 * 12 * 2 * 2 * 256);
  assert.equal(bytes("qwen3-next").stateBytes, 4 * 36 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128)));
  // Kimi Linear: 6 layers whose cache is a latent of 512 and a shared key of 64.
  assert.equal(bytes("kimi-linear").cacheBytesPerToken, 4 * 6 * (512 + 64));
  // MiniMax: 10 softmax layers with 8 heads of 128, 70 states of 64 × 128 × 128.
  assert.equal(bytes("minimax-text-01").cacheBytesPerToken, 4 * 10 * 2 * 8 * 128);
  assert.equal(bytes("minimax-text-01").stateBytes, 4 * 70 * 64 * 128 * 128);
  for (const id of ["gla", "mamba2", "retnet", "delta-net", "gated-delta-net", "linear-transformer"])
    assert.equal(bytes(id).cacheBytesPerToken, 0, `${id} carries a state that does not grow`);
});

test("tiny presets have the patterns of the published ones", () => {
  const ids = (config: { layers: number; pattern: readonly unknown[] }): unknown[] =>
    config.pattern.map((choice) => (typeof choice === "object" ? (choice as { id: string }).id : choice));
  for (const { id, tiny, published: large } of presets) {
    assert.deepEqual(ids(tiny), ids(large), id);
    assert.equal(tiny.feedForward?.kind, large.feedForward?.kind, id);
    assert.equal(tiny.positions?.kind, large.positions?.kind, id);
    assert.equal(tiny.tied, large.tied, id);
    assert.ok(modelSize(tiny).parameters < 1_000_000, `${id} is tiny`);
  }
});

for (const { id, tiny } of presets) {
  test(`${id}, tiny: trains, and token by token it says what it says of the whole`, async () => {
    const device = hostDevice({ dtype: "float64", poison: true });
    const model = new Decoder(tiny);
    initialize(model, device, new Random(1));
    const ids = new Random(2).integers(new Int32Array(2 * 9), 0, 257);
    const batch = { inputs: ids, targets: ids.map((token) => (token + 1) % 257), batch: 2, time: 9 };
    const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 3e-3, clip: 1 });
    const losses: number[] = [];
    const task = languageModelling(model, device);
    for await (const { loss, skipped } of train(task, {
      device,
      batches: () => batch,
      optimizer,
      steps: 4,
    })) {
      losses.push(loss);
      assert.ok(!skipped);
    }
    assert.ok(losses[3]! < losses[0]!, losses.join(" "));
    const tokens = (from: number, to: number) => {
      const rows = [0, 1].flatMap((b) => [...ids.subarray(b * 9 + from, b * 9 + to)]);
      return tensor(device, rows, [2, to - from], { dtype: "int32" });
    };
    scope(device, () =>
      noGrad(() => {
        const whole = model.forward(tokens(0, 9)).logits.dataSync();
        const states = model.createState(device, 2);
        for (const [from, to] of [[0, 4], ...Array.from({ length: 5 }, (_, i) => [4 + i, 5 + i])]) {
          const state = { states, slots: [0, 1] };
          const part = model.forward(tokens(from!, to!), { state }).logits.dataSync();
          for (let b = 0; b < 2; b++)
            for (let i = 0; i < (to! - from!) * 257; i++) {
              const expected = whole[(b * 9 + from!) * 257 + i]!;
              const got = part[b * (to! - from!) * 257 + i]!;
              assert.ok(
                Math.abs(got - expected) <= 1e-9,
                `${id} row ${b} from ${from}: ${got}, expected ${expected}`,
              );
            }
        }
        states.dispose();
      }),
    );
    optimizer.dispose();
    model.dispose();
    device.close();
  });
}

test("unknown presets are answered with the nearest", () => {
  assert.throws(() => preset("qwen3next"), { code: "E_CONFIG", message: /expected one of qwen3-next,/ });
});
