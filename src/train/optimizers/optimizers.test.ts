import assert from "node:assert/strict";
import { test } from "node:test";
import { tensor } from "../../autograd/tensor.ts";
import { type Device, hostDevice, openWasm } from "../../device/index.ts";
import { onesInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { adam, adamW, rAdam } from "./adam.ts";
import { lion } from "./lion.ts";
import { muon } from "./muon.ts";
import { Optimizer, type UpdateRule } from "./optimizer.ts";
import { sgd } from "./sgd.ts";

const rules: Record<string, () => UpdateRule> = {
  ...{ adamW: () => adamW(), adam: () => adam(), rAdam: () => rAdam(), lion: () => lion() },
  ...{ sgd: () => sgd({ momentum: 0.9 }), muon: () => muon() },
};

/** Wide maps of one shape, a tall one, and a vector that is no map. */
class Several extends Module {
  readonly wide = new Linear(70, 37);
  readonly alike = new Linear(70, 37);
  readonly tall = new Linear(13, 41);
  readonly scale = new Parameter([19], { init: onesInit, decays: false });
}

function fresh(device: Device): { module: Several; setGradients(step: number): void } {
  const module = new Several();
  const draw = (random: Random, size: number): Float32Array => random.normal(new Float32Array(size));
  for (const [name, parameter] of module.namedParameters())
    parameter.set(device, draw(new Random(1, name), parameter.size));
  const setGradients = (step: number): void => {
    for (const [name, { value }] of module.namedParameters())
      value.grad = tensor(device, draw(new Random(step, name), value.size), value.shape, {
        persistent: true,
      });
  };
  return { module, setGradients };
}

async function moved(device: Device, rule: UpdateRule, steps: number): Promise<number[]> {
  const { module, setGradients } = fresh(device);
  const optimizer = new Optimizer(rule, module.namedParameters(), {
    ...{ learningRate: 0.02, weightDecay: 0.1, clip: 3 },
  });
  for (let step = 1; step <= steps; step++) {
    setGradients(step);
    await optimizer.step(0.02, 0.5);
  }
  return module.parameters().flatMap(({ value }) => [...value.dataSync()]);
}

function relative(found: readonly number[], expected: readonly number[]): number {
  let error = 0;
  let size = 0;
  for (const [i, value] of expected.entries()) {
    error += (found[i]! - value) ** 2;
    size += value ** 2;
  }
  return Math.sqrt(error / size);
}

for (const name of Object.keys(rules)) {
  test(`${name} moves weights on the wasm device as in float64`, async () => {
    const wasm = await openWasm({ threads: 2 });
    try {
      const expected = await moved(hostDevice({ dtype: "float64" }), rules[name]!(), 4);
      const found = await moved(wasm, rules[name]!(), 4);
      // Every step rounds a few products; Muon's polynomial triples an error five times at most.
      const terms = name === "muon" ? 70 * 4 * 3 ** 5 : 70 * 4;
      assert.ok(relative(found, expected) <= 8 * 2 ** -24 * Math.sqrt(terms), `${relative(found, expected)}`);
    } finally {
      wasm.close();
    }
  });

  test(`${name} comes down a bowl`, async () => {
    const device = await openWasm({ threads: 1 });
    const { module } = fresh(device);
    const optimizer = new Optimizer(rules[name]!(), module.namedParameters(), { learningRate: 0.05 });
    const distance = (): number =>
      module
        .parameters()
        .flatMap(({ value }) => [...value.dataSync()])
        .reduce((sum, x) => sum + x * x, 0);
    const before = distance();
    for (let step = 0; step < 800; step++) {
      for (const { value } of module.parameters())
        value.grad = tensor(device, [...value.dataSync()], value.shape, { persistent: true });
      await optimizer.step(0.05 * (1 - step / 800));
    }
    assert.ok(distance() < 0.05 * before, `${distance()} of ${before}`);
    device.close();
  });
}

test("adam decays through its gradient, adamW beside it", async () => {
  const device = hostDevice({ dtype: "float64" });
  const run = async (rule: UpdateRule): Promise<number> => {
    const parameter = new Parameter([1], { init: onesInit });
    parameter.set(device, [2]);
    const optimizer = new Optimizer(rule, [["p", parameter]], { learningRate: 0.1, weightDecay: 0.5 });
    parameter.value.grad = tensor(device, [-3], [1], { persistent: true });
    await optimizer.step();
    return parameter.value.dataSync()[0]!;
  };
  // The first step of Adam is the sign of its gradient: −3 + 0.5·2 still points down.
  assert.ok(Math.abs((await run(adam())) - 2.1) < 1e-6);
  assert.ok(Math.abs((await run(adamW())) - (2 * (1 - 0.05) + 0.1)) < 1e-6);
});

test("muon moves a map by a matrix whose singular values are near one", async () => {
  const device = hostDevice({ dtype: "float64" });
  const { module, setGradients } = fresh(device);
  const { value } = module.wide.weight;
  const before = [...value.dataSync()];
  setGradients(1);
  const optimizer = new Optimizer(muon({ scale: 1 / Math.sqrt(70) }), module.namedParameters(), {
    learningRate: 1,
  });
  await optimizer.step();
  const update = [...value.dataSync()].map((x, i) => before[i]! - x);
  for (let row = 0; row < 37; row++) {
    const own = update.slice(row * 70, (row + 1) * 70);
    const norm = own.reduce((sum, x) => sum + x * x, 0);
    // Rows of an orthogonal factor of 37 × 70 are of unit length; the polynomial leaves values between 0.7 and 1.2.
    assert.ok(norm > 0.4 && norm < 1.5, `row ${row}: ${norm}`);
  }
  const frobenius = update.reduce((sum, x) => sum + x * x, 0);
  assert.ok(Math.abs(frobenius / 37 - 1) < 0.35, `${frobenius}`);
});

test("muon moves maps of one shape together as it moves each alone, bit for bit", async () => {
  const device = await openWasm({ threads: 2 });
  const values = async (parted: boolean): Promise<readonly number[]> => {
    const { module, setGradients } = fresh(device);
    const parameters = [...module.namedParameters()];
    const groups = parted ? parameters.map((parameter) => [parameter]) : [parameters];
    const optimizers = groups.map((group) => new Optimizer(muon(), group, { learningRate: 0.02 }));
    for (let step = 1; step <= 3; step++) {
      setGradients(step);
      for (const optimizer of optimizers) await optimizer.step();
    }
    return module.parameters().flatMap(({ value }) => [...value.dataSync()]);
  };
  assert.deepEqual(await values(false), await values(true));
  device.close();
});
