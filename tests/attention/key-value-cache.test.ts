/** The cache by itself: exact attention piece by piece, what it costs, forks, truncation, and what it refuses. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasmSync } from "../../src/device/wasm/open.ts";
import { attention } from "../../src/mechanisms/attention/attention-op.ts";
import { KeyValueCache } from "../../src/mechanisms/attention/key-value-cache.ts";
import { part } from "../../src/ops/split/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { assertWithin } from "../mechanisms/layer-case.ts";

const devices: [Device, number][] = [
  [hostDevice({ dtype: "float64", poison: true }), 1e-13],
  [openWasmSync({ tier: "a", threads: 1, poison: true }), 2e-6],
];
after(() => {
  for (const [device] of devices) device.close();
});

const [B, T, HQ, HKV, K, V] = [2, 150, 4, 2, 6, 5];
const shape = { batch: B, keyHeads: HKV, keyWidth: K, valueWidth: V };

function drawn(device: Device, name: string, heads: number, width: number): Tensor {
  const values = new Random(3, name).normal(new Float32Array(B * T * heads * width));
  return tensor(device, values, [B, T, heads, width], { persistent: true });
}

const inputsOn = (device: Device) => ({
  q: drawn(device, "q", HQ, K),
  k: drawn(device, "k", HKV, K),
  v: drawn(device, "v", HKV, V),
});

type Inputs = ReturnType<typeof inputsOn>;

/** Outputs of tokens [from, to). */
function feed(cache: KeyValueCache, { q, k, v }: Inputs, from: number, to: number): Float64Array {
  const cut = (x: Tensor): Tensor => part(x, 1, from, to - from);
  return scope(cache.device, () => Float64Array.from(cache.extend(cut(q), cut(k), cut(v)).dataSync()));
}

function whole(inputs: Inputs, from: number, to: number, window?: number): Float64Array {
  return scope(inputs.q.device, () => {
    const { output } = attention(inputs, { causal: true, window });
    return Float64Array.from(part(output, 1, from, to - from).dataSync());
  });
}

for (const [device, bound] of devices) {
  const inputs = inputsOn(device);

  for (const window of [undefined, 7]) {
    test(`a cache ${window ? "with a window " : ""}gives attention of the whole, in pieces and token by token, on ${device.defaultDtype}`, () => {
      const cache = new KeyValueCache(device, { ...shape, ...(window && { window }) });
      const cuts = [0, 5, 6, 7, 70, 71, 72, 140, 149, 150];
      for (let i = 0; i + 1 < cuts.length; i++) {
        const [from, to] = [cuts[i]!, cuts[i + 1]!];
        assertWithin(
          feed(cache, inputs, from, to),
          whole(inputs, from, to, window),
          bound,
          `${from} to ${to}`,
        );
      }
      assert.equal(cache.length, T);
      cache.dispose();
    });
  }

  test(`a fork goes on by itself and truncation takes tokens back, on ${device.defaultDtype}`, () => {
    const cache = new KeyValueCache(device, shape);
    feed(cache, inputs, 0, 80);
    const fork = cache.fork();
    feed(cache, inputs, 100, 130);
    assertWithin(feed(fork, inputs, 80, 90), whole(inputs, 80, 90), bound, "fork");
    cache.truncate(80);
    assertWithin(feed(cache, inputs, 80, 85), whole(inputs, 80, 85), bound, "truncated");
    cache.truncate(3);
    assertWithin(feed(cache, inputs, 3, 9), whole(inputs, 3, 9), bound, "far back");
    cache.dispose();
    assertWithin(feed(fork, inputs, 90, 91), whole(inputs, 90, 91), bound, "the fork outlives its origin");
    fork.dispose();
  });
}

test("a cache says its bytes, doubles them as tokens come, and a window keeps them", () => {
  const [[device]] = devices as [[Device, number]];
  const inputs = inputsOn(device);
  const perToken = 8 * B * HKV * (K + V);
  const cache = new KeyValueCache(device, shape);
  assert.equal(cache.bytes, 64 * perToken);
  feed(cache, inputs, 0, 64);
  assert.equal(cache.bytes, 64 * perToken);
  feed(cache, inputs, 64, 65);
  assert.equal(cache.bytes, 130 * perToken);
  const windowed = new KeyValueCache(device, { ...shape, window: 7 });
  const before = windowed.bytes;
  for (let t = 0; t < T; t++) feed(windowed, inputs, t, t + 1);
  assert.equal(windowed.bytes, before);
  assert.ok(windowed.start > 0);
  const held = device.info().bytes.persistent;
  windowed.dispose();
  assert.equal(device.info().bytes.persistent, held - before);
});

test("a cache over its limit, truncated beyond its start or disposed is refused by name", () => {
  const [[device]] = devices as [[Device, number]];
  const inputs = inputsOn(device);
  const limited = new KeyValueCache(device, { ...shape, limit: 70 });
  feed(limited, inputs, 0, 69);
  assert.throws(() => feed(limited, inputs, 69, 71), { code: "E_CONFIG", message: /over its limit.*70/ });
  assert.equal(limited.length, 69, "nothing was taken in");
  assertWithin(feed(limited, inputs, 69, 70), whole(inputs, 69, 70), 1e-13, "the last one fits");

  const windowed = new KeyValueCache(device, { ...shape, window: 7 });
  for (let t = 0; t < T; t++) feed(windowed, inputs, t, t + 1);
  windowed.truncate(windowed.start + 1);
  assert.throws(() => feed(windowed, inputs, 0, 1), { code: "E_CONFIG", message: /beyond its start/ });
  assert.throws(() => windowed.fork(), { code: "E_CONFIG", message: /beyond its start/ });
  windowed.truncate(0);
  assertWithin(feed(windowed, inputs, 0, 9), whole(inputs, 0, 9, 7), 1e-13, "begun anew");
  assert.throws(() => windowed.truncate(10), { code: "E_CONFIG", message: /expected 0 to 9, got 10/ });
  assert.throws(() => windowed.truncate(-1), { code: "E_CONFIG" });

  assert.throws(() => new KeyValueCache(device, { ...shape, window: -1 }), {
    code: "E_CONFIG",
    message: /window/,
  });
  assert.throws(() => new KeyValueCache(device, { ...shape, limit: 0 }), {
    code: "E_CONFIG",
    message: /limit/,
  });
  const other = drawn(device, "other", HKV, K + 1);
  assert.throws(() => limited.extend(other, other, other), { code: "E_SHAPE", message: /K/ });
  windowed.dispose();
  assert.throws(() => windowed.bytes, { code: "E_DISPOSED" });
});
