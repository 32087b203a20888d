/** Every mechanism's layer, in the variants that papers have of it: one list of statements that holds for all. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { backward, noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Layer } from "../../src/mechanisms/layer.ts";
import { mechanism, mechanisms } from "../../src/mechanisms/registry.ts";
import { ModelState } from "../../src/models/state.ts";
import { closeTargets, wasmTarget } from "../conformance/targets.ts";
import {
  assertWithin,
  contextOf,
  ignoresPadding,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  parametersDifferentiate,
  streamsAlike,
  tokens,
} from "./layer-case.ts";
import { variants } from "./layer-variants.ts";

const host = hostDevice({ dtype: "float64", poison: true });
after(() => host.close());
after(closeTargets);

const width = 24;

test("every mechanism has a layer under test", () => {
  const tested = new Set(variants.map(({ id }) => id));
  assert.deepEqual([...tested].sort(), mechanisms.map(({ id }) => id).sort());
});

for (const { id, name, options, bound = 4e-6, gradientBound = 1e-6 } of variants) {
  const { traits } = mechanism(id);
  const { causal } = traits;
  const make = (device: Device): Layer =>
    initialized(device, mechanism(id).layer({ width, heads: 2, layer: 1, layers: 3, ...options }));

  test(`layer ${name} has the gradients of finite differences, by x and by every parameter`, () => {
    const x = normalTensor(host, "x", [2, 9, width], true);
    layerDifferentiates(make(host), x, { causal }, { step: 1e-6, bound: gradientBound });
    parametersDifferentiate(make(host), x, { causal }, gradientBound);
  });

  test(`layer ${name} gives the same bits with one, two and three threads`, async () => {
    const results: ArrayLike<number>[][] = [];
    for (const threads of [1, 2, 3])
      results.push(everything(await wasmTarget("a").open(threads), make, causal));
    assert.deepEqual(results[1], results[0]);
    assert.deepEqual(results[2], results[0]);
  });

  test(`layer ${name} keeps packed sequences apart`, () => {
    const layer = make(host);
    const x = normalTensor(host, "x", [1, 13, width]);
    const cuSeqlens = tensor(host, [0, 5, 5, 6, 13], [5], { dtype: "int32" });
    const packed = outputOf(layer, x, { causal, cuSeqlens });
    for (const [from, to] of [
      [0, 5],
      [5, 6],
      [6, 13],
    ] as const) {
      const alone = outputOf(layer, tokens(x, from, to), { causal });
      assertWithin(packed.subarray(from * width, to * width), alone, 1e-12, `tokens ${from} to ${to}`);
    }
  });

  if (!causal || Object.keys(make(host).stateSpec).length === 0) continue;

  test(`layer ${name} gives the same whole, in pieces and token by token`, async () => {
    streamsAlike(make(host), normalTensor(host, "x", [2, 17, width]), 1e-12);
    const wasm = await wasmTarget("a").open(1);
    streamsAlike(make(wasm), normalTensor(wasm, "x", [2, 17, width]), bound);
  });

  test(`layer ${name} leaves padding out, from the beginning and behind a state`, () => {
    ignoresPadding(make(host), normalTensor(host, "x", [2, 12, width], true), 1e-12);
  });

  test(`layer ${name} goes on with packed sequences from the states they left`, () => {
    const layer = make(host);
    const x = normalTensor(host, "x", [1, 12, width]);
    const whole = outputOf(layer, tokens(x, 0, 7));
    const states = new ModelState(host, [layer], 3, 16);
    const cut = (bounds: number[]): Tensor => tensor(host, bounds, [bounds.length], { dtype: "int32" });
    // Sequence 0 is tokens 0 to 6, sequence 1 tokens 7 to 11; each is cut in two.
    const pick = (from: number[]): Tensor => {
      const values = x.dataSync();
      const rows = from.map((t) => [...values.subarray(t * width, (t + 1) * width)]);
      return tensor(host, rows.flat(), [1, from.length, width]);
    };
    noGrad(() => {
      outputOf(layer, pick([0, 1, 2, 7, 8]), {
        cuSeqlens: cut([0, 3, 5]),
        state: states.view([2, 0], 3)[0]!,
      });
      states.advance([2], 3);
      states.advance([0], 2);
      const rest = outputOf(layer, pick([3, 4, 5, 6, 9, 10, 11]), {
        cuSeqlens: cut([0, 4, 7]),
        state: states.view([2, 0], 4)[0]!,
      });
      assertWithin(rest.subarray(0, 4 * width), whole.subarray(3 * width), 1e-12, "first");
      const other = outputOf(layer, tokens(x, 7, 12));
      assertWithin(rest.subarray(4 * width), other.subarray(2 * width), 1e-12, "second");
    });
    states.dispose();
  });
}

/** Output of a batch, and the gradients of a sum by x and by every parameter. */
function everything(device: Device, make: (device: Device) => Layer, causal: boolean): ArrayLike<number>[] {
  const layer = make(device);
  const results = scope(device, () => {
    const x = normalTensor(device, "x", [2, 33, width], true);
    const y = layer.forward(x, contextOf({ training: true, causal }));
    backward([y], [normalTensor(device, "seed", y.shape)]);
    const all = [y, x.grad!, ...layer.parameters().flatMap(({ value }) => value.grad ?? [])];
    return all.map((values) => Float32Array.from(values.dataSync()));
  });
  layer.dispose();
  return results;
}
