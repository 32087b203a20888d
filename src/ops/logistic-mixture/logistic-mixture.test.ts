import assert from "node:assert/strict";
import { test } from "node:test";
import { tensor } from "../../autograd/tensor.ts";
import { hostDevice } from "../../device/host/host.ts";
import { openWasm } from "../../device/wasm/open.ts";
import { Random } from "../../tensor/random.ts";
import { logisticMixture } from "./index.ts";

/** Probabilities of all 256 values under one mixture, as a device computes them. */
async function probabilities(parameters: Float32Array, kind: "host" | "wasm"): Promise<number[]> {
  const device = kind === "host" ? hostDevice() : await openWasm({ threads: 1 });
  const width = parameters.length;
  const rows = Float32Array.from({ length: 256 * width }, (_, i) => parameters[i % width]!);
  const values = Int32Array.from({ length: 256 }, (_, value) => value);
  const x = tensor(device, rows, [256, width]);
  const nats = logisticMixture(x, tensor(device, values, [256], { dtype: "int32" })).dataSync();
  const list = [...nats].map((nat) => Math.exp(-nat));
  device.close();
  return list;
}

/** Mixtures wide and narrow, inside and outside the range of pixels. */
function mixtures(): Float32Array[] {
  const random = new Random(3);
  return [0.1, 1, 3].map((spread) => {
    const logits = random.normal(new Float32Array(10));
    const means = random.normal(new Float32Array(10), 0, spread);
    const logScales = random.normal(new Float32Array(10), -2, spread);
    return Float32Array.of(...logits, ...means, ...logScales);
  });
}

for (const kind of ["host", "wasm"] as const) {
  test(`logistic mixture sums to one over the 256 values on ${kind}`, async () => {
    for (const parameters of mixtures()) {
      const list = await probabilities(parameters, kind);
      const sum = list.reduce((total, p) => total + p, 0);
      // 256 probabilities, each within a few roundings of its own size.
      assert.ok(Math.abs(sum - 1) < 8 * 2 ** -23 * Math.sqrt(256), `the probabilities add up to ${sum}`);
    }
  });
}

test("logistic mixture gives a far value the tail of its logistic, not a floor", async () => {
  // One logistic at −1 of scale e^−5: value 128 is 149 scales away.
  const parameters = Float32Array.of(0, -1, -5);
  const list = await probabilities(parameters, "wasm");
  const inverse = Math.exp(5);
  const a = (128 / 127.5 + 1 / 255) * inverse;
  const b = (128 / 127.5 - 1 / 255) * inverse;
  const expected = -b + Math.log(1 - Math.exp(b - a));
  assert.ok(expected < -80);
  const device = await openWasm({ threads: 1 });
  const x = tensor(device, parameters, [1, 3]);
  const [nats] = logisticMixture(x, tensor(device, Int32Array.of(128), [1], { dtype: "int32" })).dataSync();
  assert.ok(Math.abs(nats! + expected) < 1e-5 * Math.abs(expected), `${nats} against ${-expected}`);
  assert.ok(list[0]! > 0.6);
  device.close();
});
