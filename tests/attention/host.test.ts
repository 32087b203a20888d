/** The host loops of attention against the paper's equation, against other people's values and against differences. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hostDevice } from "../../src/device/host/host.ts";
import { reference } from "../../src/mechanisms/softmax/reference.ts";
import {
  type AttentionCase,
  assertClose,
  lossOf,
  normals,
  randomCase,
  relativeError,
  runCase,
  uniform,
} from "./attention-case.ts";
import { goldenCase, goldenNames } from "./golden.ts";

const device = hostDevice({ dtype: "float64", poison: true });

for (const name of goldenNames) {
  test(`host loops give the golden values and gradients of ${name}`, () => {
    const { of, expected } = goldenCase(name);
    assertClose(runCase(device, of), expected, 1e-12, name);
  });
}

function referenceOutput(of: AttentionCase): Float64Array {
  const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = of.sizes;
  const values = (data: ArrayLike<number>, ...shape: number[]) => ({ data: Float64Array.from(data), shape });
  const inputs = {
    q: values(of.q, batch, time, queryHeads, keyWidth),
    k: values(of.k, batch, keyTime, keyHeads, keyWidth),
    v: values(of.v, batch, keyTime, keyHeads, valueWidth),
    ...(of.keyMask === undefined ? {} : { keyMask: values(of.keyMask.values, batch, keyTime) }),
    ...(of.bias === undefined ? {} : { bias: values(of.bias.values, batch, queryHeads, time, keyTime) }),
  };
  const { causal, scale, window } = of;
  return reference(inputs, { causal, scale, ...(window === undefined ? {} : { window }) }).output.data;
}

const againstReference: Record<string, Parameters<typeof randomCase>[0]> = {
  "full attention": { batch: 2, time: 7, keyTime: 11, causal: false },
  "causal attention after a prefix": { time: 5, keyTime: 9, offset: 4, keyHeads: 1 },
  "a window": { time: 12, window: 4, valueWidth: 3 },
  "hidden keys": {
    batch: 2,
    time: 5,
    keyMask: { dtype: "uint8", values: [0, 1, 1, 0, 1, 1, 1, 0, 0, 1] },
  },
  "a bias": { batch: 2, time: 6, bias: "full" },
};

for (const [name, choices] of Object.entries(againstReference)) {
  test(`host loops equal the reference with ${name}`, () => {
    const of = randomCase(choices);
    const error = relativeError(runCase(device, of).output!, referenceOutput(of));
    assert.ok(error <= 1e-13, `relative error ${error}`);
  });
}

const differences: Record<string, Parameters<typeof randomCase>[0]> = {
  "full attention": { batch: 2, time: 4, keyTime: 6, causal: false, statistics: true },
  "grouped queries after a prefix": {
    time: 4,
    keyTime: 7,
    offset: 3,
    queryHeads: 4,
    keyHeads: 2,
    statistics: true,
  },
  "a window": { time: 9, window: 3, statistics: true },
  "hidden keys": {
    batch: 2,
    time: 3,
    keyMask: { dtype: "int32", values: [0, 1, 1, 1, 0, 1] },
    statistics: true,
  },
  "a bias": { batch: 2, time: 4, bias: "full", statistics: true },
  "a bias of all heads": { batch: 2, time: 4, bias: "shared" },
  "packed sequences": { time: 9, cuSeqlens: [0, 4, 4, 5, 9], statistics: true },
};

/** A case with one of its inputs moved along a direction. */
function moved(
  of: AttentionCase,
  name: "q" | "k" | "v" | "bias",
  by: Float64Array,
  step: number,
): AttentionCase {
  const shift = (values: Float64Array) => values.map((x, i) => x + step * by[i]!);
  return name === "bias"
    ? { ...of, bias: { ...of.bias!, values: shift(of.bias!.values) } }
    : { ...of, [name]: shift(of[name]) };
}

for (const [name, choices] of Object.entries(differences)) {
  test(`host gradients agree with central differences with ${name}`, () => {
    const of = randomCase(choices);
    const results = runCase(device, of);
    for (const input of ["q", "k", "v", ...(of.bias === undefined ? [] : ["bias" as const])] as const) {
      const length = input === "bias" ? of.bias!.values.length : of[input].length;
      const by = normals(uniform(7), length);
      const loss = (step: number) =>
        lossOf(of, runCase(device, moved(of, input, by, step), { backward: false }));
      const step = 1e-5;
      const expected = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step);
      const actual = results[input]!.reduce((sum, gradient, i) => sum + gradient * by[i]!, 0);
      // Rounding of the loss over the step, 1e-16 / 1e-5, times the size of the sums.
      assert.ok(
        Math.abs(actual - expected) <= 1e-8 * Math.max(1, Math.abs(expected)),
        `${input}: ${actual} ${expected}`,
      );
    }
  });
}

test("host: a query that sees nothing gets zeros, and gradients of zero", () => {
  const of = randomCase({ time: 3, keyMask: { dtype: "uint8", values: [0, 0, 1] } });
  const results = runCase(device, of);
  assert.deepEqual([...results.output!.subarray(0, 16)], Array(16).fill(0));
  assert.deepEqual([...results.q!.subarray(0, 16)], Array(16).fill(0));
  assert.ok(results.lse!.subarray(0, 4).every((x) => x === Number.NEGATIVE_INFINITY));
});

test("host: NaN in the future or under the mask touches nothing", () => {
  const of = randomCase({ time: 6, valueWidth: 4 });
  const clean = runCase(device, of).output!;
  const k = of.k.slice().fill(Number.NaN, 4 * 8);
  const v = of.v.slice().fill(Number.NaN, 4 * 8);
  const poisoned = runCase(device, { ...of, k, v }, { backward: false }).output!;
  assert.deepEqual(poisoned.subarray(0, 4 * 8), clean.subarray(0, 4 * 8));
});
