/** Encoders and what is made of them: padding that nothing sees, tokens that see each other, gradients. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { gradCheck } from "../../src/autograd/grad-check.ts";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import { Classifier } from "../../src/models/classifier.ts";
import type { EncoderConfig, MixerChoice, PositionConfig } from "../../src/models/config.ts";
import { Encoder } from "../../src/models/encoder.ts";
import { MaskedModel } from "../../src/models/masked-model.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";

const device = hostDevice({ dtype: "float64", poison: true });
const ints = (values: readonly number[], shape: readonly number[]): Tensor =>
  tensor(device, values, shape, { dtype: "int32" });

const mixers: readonly MixerChoice[] = mechanisms
  .filter(({ traits }) => traits.full)
  .map(({ id }) => (id === "linformer" ? { id, length: 12, projectionLength: 4 } : id));
const positions: readonly PositionConfig[] = [
  { kind: "learned", length: 9 },
  { kind: "sinusoidal" },
  { kind: "rotary" },
];

function encoderOf(mixer: MixerChoice, position: PositionConfig, more: Partial<EncoderConfig> = {}): Encoder {
  const encoder = new Encoder({
    ...{
      vocabularySize: 13,
      width: 8,
      layers: 2,
      heads: 2,
      pattern: [mixer],
      positions: position,
      norm: "layer",
    },
    ...more,
  });
  initialize(encoder, device, new Random(1));
  return encoder;
}

const texts = [
  [1, 2, 3, 4, 5, 6, 7, 8, 9],
  [10, 11, 12, 1, 2],
];

function hiddenOf(
  encoder: Encoder,
  ids: readonly number[],
  shape: [number, number],
  mask?: number[],
): Float64Array {
  return scope(device, () =>
    noGrad(() => {
      const context = mask ? { mask: ints(mask, shape) } : {};
      return Float64Array.from(encoder.forward(ints(ids, shape), context).hidden.dataSync());
    }),
  );
}

function near(got: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  assert.equal(got.length, expected.length, what);
  for (let i = 0; i < expected.length; i++)
    assert.ok(
      Math.abs(got[i]! - expected[i]!) <= 1e-12,
      `${what}: ${got[i]} at ${i}, expected ${expected[i]}`,
    );
}

test("an encoder sees no padding, left or right, whatever its mixer and positions", () => {
  assert.deepEqual(mixers.map((mixer) => (typeof mixer === "object" ? mixer.id : mixer)).sort(), [
    "cosine",
    "latent-attention",
    "linear",
    "linformer",
    "lsh",
    "nystrom",
    "performer",
    "softmax",
  ]);
  for (const mixer of mixers)
    for (const position of positions) {
      const what = `${JSON.stringify(mixer)} ${position.kind}`;
      const encoder = encoderOf(mixer, position);
      const alone = texts.map((text) => hiddenOf(encoder, text, [1, text.length]));
      const [long, short] = texts as [number[], number[]];
      const padding = [0, 0, 0, 0];
      const [ones, zeros] = [short.map(() => 1), padding];
      const right = hiddenOf(
        encoder,
        [...long, ...short, ...padding],
        [2, 9],
        [...long.map(() => 1), ...ones, ...zeros],
      );
      near(right.subarray(0, 72), alone[0]!, `${what} full row`);
      near(right.subarray(72, 112), alone[1]!, `${what} right`);
      const left = hiddenOf(encoder, [...padding, ...short], [1, 9], [...zeros, ...ones]);
      near(left.subarray(32), alone[1]!, `${what} left`);
      encoder.dispose();
    }
});

test("every token of an encoder sees those after it, and packed texts do not see each other", () => {
  for (const mixer of ["softmax", "linear", "performer", "cosine", "nystrom"]) {
    const encoder = encoderOf(mixer, { kind: "sinusoidal" });
    const [long, short] = texts as [number[], number[]];
    const before = hiddenOf(encoder, long, [1, 9]);
    const after = hiddenOf(encoder, [...long.slice(0, 8), 3], [1, 9]);
    assert.ok(
      before.subarray(0, 8).some((value, i) => Math.abs(value - after[i]!) > 1e-6),
      mixer,
    );
    const packed = scope(device, () =>
      noGrad(() => {
        const cuSeqlens = ints([0, 5, 14], [3]);
        return Float64Array.from(
          encoder.forward(ints([...short, ...long], [1, 14]), { cuSeqlens }).hidden.dataSync(),
        );
      }),
    );
    near(packed.subarray(0, 40), hiddenOf(encoder, short, [1, 5]), `${mixer} packed`);
    near(packed.subarray(40), before, `${mixer} packed behind`);
    encoder.dispose();
  }
});

test("causal mechanisms and too long texts are refused with what fits", () => {
  const size = { vocabularySize: 13, width: 8, layers: 1, heads: 2 };
  assert.throws(() => new Encoder({ ...size, pattern: ["gla"] }), {
    code: "E_CONFIG",
    message: /\[encoder\] gla sees only what came before: expected one of .*linear.*softmax/,
  });
  const encoder = encoderOf("softmax", { kind: "learned", length: 4 });
  assert.throws(() => hiddenOf(encoder, texts[0]!, [1, 9]), {
    code: "E_CONFIG",
    message: /learned 4 positions/,
  });
  // Five tokens are too many, three tokens and their padding are not.
  hiddenOf(encoder, [0, 0, 0, 1, 2, 3], [1, 6], [0, 0, 0, 1, 1, 1]);
});

for (const pooling of ["mean", "first"] as const) {
  test(`a classifier's ${pooling} pools a text's own tokens, padded, packed or alone`, () => {
    const model = new Classifier({
      ...{ vocabularySize: 13, width: 8, layers: 1, heads: 2, pattern: ["linear"], classes: 3, pooling },
      positions: { kind: "sinusoidal" },
    });
    initialize(model, device, new Random(2));
    const [long, short] = texts as [number[], number[]];
    const logits = (ids: number[], shape: [number, number], context: Record<string, Tensor> = {}): number[] =>
      scope(device, () => noGrad(() => [...model.forward(ints(ids, shape), context).logits.dataSync()]));
    const alone = [...logits(long, [1, 9]), ...logits(short, [1, 5])];
    const mask = ints([...long.map(() => 1), 0, 0, 1, 1, 1, 1, 1, 0, 0], [2, 9]);
    near(logits([...long, 0, 0, ...short, 0, 0], [2, 9], { mask }), alone, "padded");
    near(logits([...long, ...short], [1, 14], { cuSeqlens: ints([0, 9, 14], [3]) }), alone, "packed");
    if (pooling === "mean") {
      const { hidden } = noGrad(() => model.encoder.forward(ints(long, [1, 9])));
      const values = hidden.dataSync();
      const mean = Array.from({ length: 8 }, (_, c) =>
        long.reduce((s, _id, t) => s + values[t * 8 + c]! / 9, 0),
      );
      const weight = model.head.weight.value.dataSync();
      const expected = [0, 1, 2].map((o) => mean.reduce((s, m, c) => s + m * weight[o * 8 + c]!, 0));
      near(alone.slice(0, 3), expected, "the mean");
    }
    model.dispose();
  });
}

test("gradients of an encoder with padding are those of finite differences, recomputed or not", () => {
  for (const again of [false, true]) {
    const model = new Classifier({
      ...{ vocabularySize: 13, width: 8, layers: 2, heads: 2, pattern: ["softmax", "linear"], classes: 3 },
      ...{ positions: { kind: "learned", length: 9 }, feedForward: { kind: "gated", width: 8 } },
    });
    initialize(model, device, new Random(3));
    const tokens = ints([...texts[0]!, 0, 0, ...texts[1]!, 0, 0], [2, 9]);
    const mask = ints([1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0], [2, 9]);
    const labels = ints([2, 0], [2]);
    const { value } = model.encoder.embedding.weight;
    const rows = gradCheck(
      device,
      ({ table: probe }) => ({
        // The table is shifted by the probe: its gradient is that of the loss.
        y: withTable(model, probe!, () =>
          model.loss(tokens, labels, { mask, training: true, recompute: again }),
        ),
      }),
      { table: value },
      (stream, i) => Math.cos(17 * stream + 3 * i),
      1e-5,
    );
    for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
    for (const [name, parameter] of model.namedParameters())
      if (name !== "encoder.embedding.weight")
        assert.ok(parameter.value.grad !== undefined, `${name} has a gradient`);
    model.dispose();
  }
});

function withTable(model: Classifier, table: Tensor, run: () => Tensor): Tensor {
  const parameter = model.encoder.embedding.weight;
  const own = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(parameter), "value")!;
  Object.defineProperty(parameter, "value", { configurable: true, get: () => table });
  try {
    return run();
  } finally {
    Object.defineProperty(parameter, "value", own);
  }
}

test("a masked model is asked where targets ask, and shares its encoder's names with a classifier", () => {
  const config = { vocabularySize: 14, width: 8, layers: 1, heads: 2, pattern: ["softmax"] };
  const model = new MaskedModel(config);
  initialize(model, device, new Random(4));
  const tokens = ints([1, 13, 3, 4, 13, 6], [2, 3]);
  const targets = ints([-100, 2, -100, -100, 5, -100], [2, 3]);
  const [loss, logits] = noGrad(() => [
    model.loss(tokens, targets).dataSync()[0]!,
    model.forward(tokens).logits.dataSync(),
  ]);
  const nats = [
    [1, 2],
    [4, 5],
  ].map(([at, id]) => {
    const row = [...logits.subarray(at! * 14, (at! + 1) * 14)];
    return Math.log(row.reduce((s, x) => s + Math.exp(x), 0)) - row[id!]!;
  });
  assert.ok(Math.abs(loss - (nats[0]! + nats[1]!) / 2) < 1e-12);
  assert.throws(() => model.loss(tokens, ints(new Array(6).fill(-100), [2, 3])), { code: "E_CONFIG" });
  const names = (prefix: string, module: { namedParameters(): Iterable<readonly [string, unknown]> }) =>
    [...module.namedParameters()].map(([name]) => name).filter((name) => name.startsWith(prefix));
  const classifier = new Classifier({ ...config, classes: 2 });
  assert.deepEqual(names("encoder.", model), names("encoder.", classifier));
});
