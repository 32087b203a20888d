/** The softmax layer: every option, whole, in pieces, token by token, padded and packed. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gradCheck } from "../../src/autograd/grad-check.ts";
import { tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import { SoftmaxLayer, type SoftmaxLayerOptions } from "../../src/mechanisms/softmax/layer.ts";
import { ModelState } from "../../src/models/state.ts";
import {
  assertWithin,
  contextOf,
  ignoresPadding,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  streamsAlike,
  tokens,
} from "./layer-case.ts";

const host = hostDevice({ dtype: "float64", poison: true });
let wasm: Device;

before(async () => {
  // Tier C where there is one, else B.
  wasm = await openWasm({ tier: "c", threads: 2, poison: true });
});

after(() => {
  wasm.close();
  host.close();
});

const kinds: Record<string, Partial<SoftmaxLayerOptions>> = {
  plain: {},
  grouped: { keyValueHeads: 2 },
  gated: { keyValueHeads: 1, gated: true, queryKeyNorm: true, rotary: { width: 4 }, zeroCentered: true },
  windowed: { window: 5, rotary: {}, bias: true },
  "odd widths": { keyWidth: 6, valueWidth: 3, gated: true },
};

const make = (device: Device, own: Partial<SoftmaxLayerOptions> = {}): SoftmaxLayer =>
  initialized(device, new SoftmaxLayer({ width: 32, heads: 4, ...own }));

for (const [name, own] of Object.entries(kinds)) {
  test(`softmax layer ${name} gives the same whole, in pieces and token by token`, () => {
    for (const [device, bound] of [
      [host, 1e-13],
      [wasm, 1e-6],
    ] as const) {
      const layer = make(device, own);
      const x = normalTensor(device, "x", [2, 17, 32]);
      streamsAlike(layer, x, bound);
      layer.dispose();
    }
  });

  test(`softmax layer ${name} agrees with float64 on wasm`, () => {
    const expected = outputOf(make(host, own), normalTensor(host, "x", [2, 70, 32]));
    assertWithin(outputOf(make(wasm, own), normalTensor(wasm, "x", [2, 70, 32])), expected, 2e-6, name);
  });

  test(`softmax layer ${name} has the gradients of finite differences`, () => {
    layerDifferentiates(make(host, own), normalTensor(host, "x", [2, 7, 32], true));
  });
}

test("softmax layer leaves padding out, from the beginning and behind a state", () => {
  const x = normalTensor(host, "x", [2, 12, 32], true);
  ignoresPadding(make(host, { ...kinds["gated"], window: 6 }), x, 1e-13);
});

test("softmax layer reads a memory of another length and width, masked", () => {
  const layer = make(host, { memoryWidth: 10, rotary: {} });
  const x = normalTensor(host, "x", [2, 3, 32], true);
  const memory = normalTensor(host, "memory", [2, 7, 10], true);
  const memoryMask = tensor(host, [1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1], [2, 7], { dtype: "int32" });
  const y = outputOf(layer, x, { memory, memoryMask });
  const short = outputOf(layer, x, { memory: tokens(memory, 0, 5) });
  assertWithin(y.subarray(0, 3 * 32), short.subarray(0, 3 * 32), 1e-13, "hidden tokens do not count");
  const last = outputOf(layer, tokens(x, 2, 3), { memory, memoryMask });
  assertWithin(last.subarray(0, 32), y.subarray(2 * 32, 3 * 32), 1e-13, "one query");
  const rows = gradCheck(
    host,
    (inputs) => ({ y: layer.forward(inputs["x"]!, contextOf({ memory: inputs["memory"]!, memoryMask })) }),
    { x, memory },
    (stream, i) => Math.cos(17 * stream + 3 * i),
  );
  for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
});

test("softmax layer sees everything where it is not causal", () => {
  const layer = make(host);
  const x = normalTensor(host, "x", [1, 6, 32]);
  const full = outputOf(layer, x, { causal: false });
  const causal = outputOf(layer, x);
  assertWithin(full.subarray(5 * 32), causal.subarray(5 * 32), 1e-13, "the last token");
  assert.ok(full.subarray(0, 32).some((value, i) => Math.abs(value - causal[i]!) > 1e-3));
});

test("softmax layer without a cache carries nothing", () => {
  const layer = make(host, { decoding: "stateless" });
  assert.equal(layer.carriesState, false);
  assert.deepEqual(Object.keys(make(host).stateSpec), ["key", "value"]);
});

const bad: Record<string, Partial<SoftmaxLayerOptions>> = {
  "heads that do not group": { keyValueHeads: 3 },
  "a negative window": { window: -1 },
  "value heads of recurrences": { valueHeads: 8 },
  "a misspelt option": { keyvalueHeads: 2 } as Partial<SoftmaxLayerOptions>,
  "a rotary part wider than a head": { rotary: { width: 10 } },
  "no such decoding": { decoding: "caching" as "cache" },
  "a width that heads do not divide": { heads: 5 },
};

for (const [name, own] of Object.entries(bad)) {
  test(`softmax layer refuses ${name}`, () => {
    assert.throws(() => new SoftmaxLayer({ width: 32, heads: 4, ...own }), { code: "E_CONFIG" });
  });
}

test("softmax layer refuses a state that is too small, and one that is not causal", () => {
  const layer = make(host);
  const states = new ModelState(host, [layer], 1, 4);
  const state = states.view([0], 4)[0]!;
  const x = normalTensor(host, "x", [1, 5, 32]);
  assert.throws(() => outputOf(layer, x, { state }), { code: "E_CONFIG" });
  assert.throws(() => outputOf(layer, tokens(x, 0, 2), { state, causal: false }), { code: "E_UNSUPPORTED" });
});
