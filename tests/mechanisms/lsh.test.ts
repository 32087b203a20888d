/** LSH attention: the reference, what more rounds buy, determinism, and that nothing sees the future. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import type { LshFormOptions } from "../../src/mechanisms/lsh/forms.ts";
import { lsh } from "../../src/mechanisms/lsh/index.ts";
import { LshLayer, type LshOptions } from "../../src/mechanisms/lsh/layer.ts";
import type { Values } from "../../src/mechanisms/mechanism.ts";
import { Random } from "../../src/tensor/random.ts";
import { agrees, differentiates, drawn, outputsOf, type ValueInputs } from "./form-case.ts";
import {
  assertWithin,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  relativeError,
  tokens,
} from "./layer-case.ts";

const form = lsh.forms.chunkwise;
const host = hostDevice({ dtype: "float64", poison: true });
let wasm: Device;
let threads: Device;

before(async () => {
  // Tier C where there is one, else B.
  wasm = await openWasm({ tier: "c", threads: 1, poison: true });
  threads = await openWasm({ tier: "a", threads: 3, poison: true });
});

after(() => {
  for (const device of [host, wasm, threads]) device.close();
});

const shapes = (B: number, T: number, rounds: number, half = 2): Record<string, readonly number[]> => ({
  ...{ q: [B, T, 3, 6], v: [B, T, 3, 5], rotations: [rounds, 6, half] },
});

const cases: Record<string, readonly [T: number, rounds: number, options: LshFormOptions, half?: number]> = {
  "one round": [24, 1, { group: 4 }],
  "four rounds": [24, 4, { group: 4 }],
  "groups that do not divide T": [23, 3, { group: 5, scale: 0.7 }],
  "all see all": [21, 2, { group: 4, causal: false }],
  "one group for all": [9, 2, { group: 64 }],
  "many buckets": [70, 2, { group: 8 }, 9],
  "two buckets": [20, 2, { group: 3 }, 1],
  "rows of twenty-four pairs": [90, 3, { group: 12 }, 5],
  "wide groups and four rounds": [150, 4, { group: 32 }, 3],
  "one token": [1, 2, { group: 4 }],
};

for (const [name, [T, rounds, options, half]] of Object.entries(cases)) {
  test(`lsh agrees with its reference: ${name}`, () => {
    const inputs = drawn(lsh, shapes(2, T, rounds, half));
    agrees(host, lsh, form, inputs, options, 1e-12);
    for (const device of [wasm, threads]) agrees(device, lsh, form, inputs, options, 2e-6);
  });

  test(`lsh has the gradients of finite differences: ${name}`, () => {
    const { rotations, ...inputs } = drawn(lsh, shapes(2, Math.min(T, 12), rounds, half));
    differentiates(form, inputs as ValueInputs, options, (device) => ({
      rotations: tensor(device, rotations!.data, rotations!.shape),
    }));
  });
}

test("lsh shows a token itself only where there is nothing else, however long queries are", () => {
  const inputs = drawn(lsh, shapes(1, 40, 3));
  const options: LshFormOptions = { group: 4 };
  for (const factor of [1e3, 1e6]) {
    const data = inputs["q"]!.data.map((x) => factor * x);
    const long = { ...inputs, q: { ...inputs["q"]!, data } };
    agrees(host, lsh, form, long, options, 1e-12);
  }
});

test("a value that is no number reaches nothing before it", () => {
  for (const [T, rounds, group] of [
    [90, 3, 12],
    [150, 4, 32],
  ] as const) {
    const inputs = drawn(lsh, shapes(1, T, rounds));
    const options: LshFormOptions = { group };
    const width = 3 * 5;
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const data = inputs["v"]!.data.map((x, i) => (i < (T / 2) * width ? x : bad));
      const spoilt = { ...inputs, v: { ...inputs["v"]!, data } };
      for (const device of [host, wasm, threads]) {
        const [sound, got] = [inputs, spoilt].map((own) => outputsOf(device, form, own, options)["output"]!);
        assert.deepEqual(got!.data.slice(0, (T / 2) * width), sound!.data.slice(0, (T / 2) * width));
        assert.ok(!got!.data.every(Number.isFinite));
      }
    }
  }
});

const cut = ({ data, shape }: Values, from: number, to: number): Values => {
  const width = shape.slice(2).reduce((a, b) => a * b, 1);
  return { data: data.slice(from * width, to * width), shape: [1, to - from, ...shape.slice(2)] };
};

test("lsh keeps packed sequences apart and leaves padding out", () => {
  const inputs = drawn(lsh, shapes(1, 21, 2));
  const options = { group: 3 };
  const cuSeqlens = tensor(host, [0, 7, 7, 21], [4], { dtype: "int32" });
  const there = Array.from({ length: 21 }, (_, i) => Number(i >= 7));
  const mask = tensor(host, there, [1, 21], { dtype: "int32" });
  const all = outputsOf(host, form, inputs, { ...options, cuSeqlens } as LshFormOptions)["output"]!;
  const padded = outputsOf(host, form, inputs, options as LshFormOptions, () => ({ mask }))["output"]!;
  const { rotations } = inputs as { rotations: Values };
  const part = (from: number, to: number): ValueInputs => ({
    ...{ q: cut(inputs["q"]!, from, to), v: cut(inputs["v"]!, from, to), rotations },
  });
  const first = outputsOf(host, form, part(0, 7), options as LshFormOptions)["output"]!;
  const second = outputsOf(host, form, part(7, 21), options as LshFormOptions)["output"]!;
  assertWithin(cut(all, 0, 7).data, first.data, 1e-13, "first");
  assertWithin(cut(all, 7, 21).data, second.data, 1e-13, "second");
  assertWithin(cut(padded, 7, 21).data, second.data, 1e-13, "padded");
  assert.ok(cut(padded, 0, 7).data.every((value) => value === 0));
});

test("lsh comes closer to attention over everything with more rounds", () => {
  const own = drawn(lsh, { q: [1, 96, 2, 8], v: [1, 96, 2, 4] });
  const rotated = (rounds: number, half: number): ValueInputs => ({
    ...own,
    rotations: {
      data: new Random(1, "r").normal(new Float64Array(rounds * 8 * half)),
      shape: [rounds, 8, half],
    },
  });
  const all = outputsOf(wasm, form, rotated(1, 1), { group: 96 } as LshFormOptions)["output"]!.data;
  const errors = [1, 4, 16, 64].map((rounds) => {
    const got = outputsOf(wasm, form, rotated(rounds, 4), { group: 4 } as LshFormOptions)["output"]!.data;
    return relativeError(got, all);
  });
  for (let n = 1; n < errors.length; n++) assert.ok(errors[n]! < errors[n - 1]!, `${errors}`);
  assert.ok(errors[3]! < errors[0]! / 10, `${errors}`);
});

const kinds: Record<string, Partial<LshOptions>> = {
  plain: { rounds: 2, group: 4 },
  "one round with a bias": { rounds: 1, group: 3, buckets: 4, bias: true },
};

const make = (device: Device, own: Partial<LshOptions> = {}): LshLayer =>
  initialized(device, new LshLayer({ width: 32, heads: 4, ...own }));

for (const [name, own] of Object.entries(kinds)) {
  test(`lsh layer ${name} has gradients, is deterministic and leaves padding out`, () => {
    const layer = make(host, own);
    const x = normalTensor(host, "x", [2, 11, 32], true);
    layerDifferentiates(layer, x);
    layerDifferentiates(layer, x, { causal: false });
    const y = outputOf(layer, x);
    assert.deepEqual(outputOf(make(host, own), x), y);
    assert.notDeepEqual(outputOf(make(host, { ...own, seed: 5 }), x), y);
    const mask = tensor(host, [0, 0, ...new Array<number>(20).fill(1)], [2, 11], { dtype: "int32" });
    const padded = outputOf(make(host, { ...own, buckets: 4 }), x, { mask });
    const alone = outputOf(make(host, { ...own, buckets: 4 }), tokens(x, 2, 11));
    assertWithin(padded.subarray(2 * 32, 11 * 32), alone.subarray(0, 9 * 32), 1e-13, "left");
    layer.redraw(new Random(3));
    assert.notDeepEqual(outputOf(layer, x), y);
    layer.dispose();
  });
}

test("a group of lsh takes no more memory than its tokens", async () => {
  const device = await openWasm({ threads: 1 });
  const inputs = drawn(lsh, shapes(1, 10, 2));
  const of = (group: number) => outputsOf(device, form, inputs, { group } as LshFormOptions);
  assert.deepEqual(of(2 ** 30), of(10));
  assert.ok(device.info().bytes.peak < 2 ** 20);
  device.close();
});

test("lsh refuses what makes no sense", () => {
  const inputs = drawn(lsh, shapes(1, 6, 1));
  const call = (own: ValueInputs, options: LshFormOptions = {}) => outputsOf(host, form, own, options);
  const none = { rotations: { data: new Float64Array(0), shape: [0, 6, 2] } };
  assert.throws(() => call({ ...inputs, ...none }), { code: "E_CONFIG", message: /rounds/ });
  assert.throws(() => call(inputs, { group: 0 }), { code: "E_CONFIG", message: /group/ });
  const options = { width: 32, heads: 4 };
  assert.throws(() => new LshLayer({ ...options, rounds: 0 }), { code: "E_CONFIG", message: /rounds/ });
  assert.throws(() => new LshLayer({ ...options, buckets: 3 }), { code: "E_CONFIG", message: /buckets/ });
  assert.equal(make(host).carriesState, false);
});
