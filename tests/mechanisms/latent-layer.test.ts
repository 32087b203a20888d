/** The layer of latent attention: raised and lowered, with and without positions, padded, over a compressed cache. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import {
  LatentAttentionLayer,
  type LatentAttentionOptions,
} from "../../src/mechanisms/latent-attention/layer.ts";
import { ModelState } from "../../src/models/state.ts";
import {
  assertWithin,
  ignoresPadding,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  streamsAlike,
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

const kinds: Record<string, Partial<LatentAttentionOptions>> = {
  "without positions": { latentWidth: 12, sharedKeyWidth: 5, valueWidth: 6 },
  "with rotary positions": { latentWidth: 12, sharedKeyWidth: 4, rotary: { base: 100 } },
  "with a latent for queries": { queryLatentWidth: 10, bias: true, zeroCentered: true },
  "without a shared key": { sharedKeyWidth: 0, rotary: {} },
};

const make = (device: Device, own: Partial<LatentAttentionOptions> = {}): LatentAttentionLayer =>
  initialized(device, new LatentAttentionLayer({ width: 32, heads: 4, ...own }));

for (const [name, own] of Object.entries(kinds)) {
  test(`latent attention layer ${name} gives the same whole, in pieces and token by token`, () => {
    streamsAlike(make(host, own), normalTensor(host, "x", [2, 17, 32]), 1e-13);
    streamsAlike(make(wasm, own), normalTensor(wasm, "x", [2, 17, 32]), 2e-6);
  });

  test(`latent attention layer ${name} agrees with float64 on wasm`, () => {
    const expected = outputOf(make(host, own), normalTensor(host, "x", [2, 70, 32]));
    assertWithin(outputOf(make(wasm, own), normalTensor(wasm, "x", [2, 70, 32])), expected, 2e-6, name);
  });

  test(`latent attention layer ${name} has the gradients of finite differences`, () => {
    layerDifferentiates(make(host, own), normalTensor(host, "x", [2, 7, 32], true));
  });
}

test("latent attention layer leaves padding out, from the beginning and behind a state", () => {
  const x = normalTensor(host, "x", [2, 12, 32], true);
  ignoresPadding(make(host, kinds["with rotary positions"]), x, 1e-13);
});

test("latent attention layer keeps R + P numbers of a token, whatever the heads", () => {
  const layer = make(host, { latentWidth: 12, sharedKeyWidth: 5 });
  const states = new ModelState(host, [layer], 1);
  assert.equal(states.bytesPerToken, 4 * 17);
  assert.equal(states.bytesPerSequence, 0);
  states.dispose();
});

test("latent attention layer sees everything where it is not causal", () => {
  const layer = make(host);
  const x = normalTensor(host, "x", [1, 6, 32]);
  const full = outputOf(layer, x, { causal: false });
  const causal = outputOf(layer, x);
  assertWithin(full.subarray(5 * 32), causal.subarray(5 * 32), 1e-13, "the last token");
  assert.ok(full.subarray(0, 32).some((value, i) => Math.abs(value - causal[i]!) > 1e-3));
});

const bad: Record<string, Partial<LatentAttentionOptions>> = {
  "an odd part for rotary positions": { sharedKeyWidth: 3, rotary: {} },
  "a latent of no width": { latentWidth: 0 },
  "value heads of their own": { valueHeads: 8 },
  "a misspelt option": { latentwidth: 2 } as Partial<LatentAttentionOptions>,
};

for (const [name, own] of Object.entries(bad)) {
  test(`latent attention layer refuses ${name}`, () => {
    assert.throws(() => new LatentAttentionLayer({ width: 32, heads: 4, ...own }), { code: "E_CONFIG" });
  });
}

test("latent attention layer refuses a memory", () => {
  const x = normalTensor(host, "x", [1, 6, 32]);
  assert.throws(() => outputOf(make(host), x, { memory: x }), { code: "E_UNSUPPORTED" });
});
