import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, test } from "node:test";
import type { CaseOptions, DeltaCase, Values } from "../../../tests/recurrence/delta-case.ts";
import {
  cotangents,
  randomCase,
  readGolden,
  relativeRms,
  runBackward,
  trueGradients,
  truth,
} from "../../../tests/recurrence/delta-case.ts";
import type { Device } from "../../device/device.ts";
import { hostDevice } from "../../device/host/host.ts";
import { openWasm } from "../../device/wasm/open.ts";
import { deltaBackward, deltaForward, deltaPlan } from "./delta.ts";
import type { Decay } from "./problem.ts";

const goldenFolder = new URL("../../../tests/golden/ops/", import.meta.url).pathname;
const goldenFiles = readdirSync(goldenFolder).filter((name) => /^(delta|gated-delta|kda)-/.test(name));
const gates: readonly Decay[] = ["none", "head", "scalar", "key"];
const eps = 2 ** -24;

const plain = await openWasm({ tier: "a", threads: 1, poison: true });
// Tier C where there is one, else B.
const fused = await openWasm({ tier: "c", threads: 2, poison: true });
const wasm: readonly (readonly [string, Device])[] = [
  ["a", plain],
  ["b", fused],
];
after(() => {
  plain.close();
  fused.close();
});

/** Two chains of K and V terms, each of whose operands carries the error of a forward value. */
function bound({ sizes }: DeltaCase): number {
  return 8 * eps * Math.sqrt(sizes.keyWidth + sizes.valueWidth + 2 * Math.min(sizes.time, 64));
}

function allAgree(got: Values, expected: Values, limit: number, what: string): void {
  assert.deepEqual(Object.keys(got).sort(), Object.keys(expected).sort(), what);
  for (const [name, values] of Object.entries(expected)) {
    const error = relativeRms(got[name]!, values);
    assert.ok(error <= limit, `${what} d${name}: relative RMS ${error} over ${limit}`);
  }
}

for (const file of goldenFiles)
  test(`delta golden ${file} holds for every gradient`, () => {
    const golden = readGolden(goldenFolder + file);
    const exact = runBackward(hostDevice({ poison: true }), golden.case, golden.by);
    allAgree(exact, golden.gradients, 1e-12, "host");
    for (const [name, device] of wasm)
      for (const form of ["recurrent", "chunkwise"] as const) {
        const got = runBackward(device, golden.case, golden.by, { form });
        allAgree(got, golden.gradients, Math.min(1e-5, bound(golden.case)), `${name} ${form}`);
      }
  });

test("delta gradients on the host are the finite differences of its forward pass", () => {
  for (const decay of gates)
    for (const twoKeys of [false, true]) {
      const shape = { time: 7, heads: 1, valueHeads: 2, keyWidth: 3, valueWidth: 2 };
      const of = randomCase({ ...shape, decay, twoKeys, strongest: -2 });
      const by = cotangents(of);
      const gradients = trueGradients(of, by);
      for (const [name, values] of Object.entries(of.inputs)) {
        const differences = values.map((_, i) => difference(of, by, name, i));
        const got = name === "g" && decay === "head" ? sumPerHead(gradients["g"]!, 2) : gradients[name]!;
        const error = relativeRms(got, differences);
        assert.ok(error < 1e-7, `${decay} d${name}: ${error}`);
      }
    }
});

function sumPerHead(perToken: Float64Array, heads: number): Float64Array {
  const sums = new Float64Array(heads);
  for (let i = 0; i < perToken.length; i++) sums[i % heads]! += perToken[i]!;
  return sums;
}

/** Central difference of the cotangents' product with the results by one input element. */
function difference(of: DeltaCase, by: Values, name: string, i: number): number {
  const step = 1e-5;
  const moved = (sign: number): number => {
    const values = of.inputs[name]!.slice();
    values[i]! += sign * step;
    const got = truth({ ...of, inputs: { ...of.inputs, [name]: values } });
    return dot(got.output, by["output"]!) + dot(got.finalState, by["finalState"]!);
  };
  return (moved(1) - moved(-1)) / (2 * step);
}

function dot(a: Float64Array, b: Float64Array): number {
  return a.reduce((sum, x, i) => sum + x * b[i]!, 0);
}

test("delta gradients agree for odd widths, grouped heads and any chunk length", () => {
  const shapes: readonly CaseOptions[] = [
    { batch: 9, time: 1, heads: 5, keyWidth: 1, valueWidth: 1 },
    { time: 37, heads: 2, valueHeads: 6, keyWidth: 3, valueWidth: 33 },
    { time: 70, heads: 1, valueHeads: 3, keyWidth: 33, valueWidth: 3, twoKeys: true },
    { batch: 2, time: 35, heads: 2, keyWidth: 65, valueWidth: 65 },
    { time: 67, heads: 1, keyWidth: 64, valueWidth: 1, initial: false },
  ];
  for (const decay of gates)
    for (const shape of shapes) {
      const of = randomCase({ ...shape, decay });
      const by = cotangents(of);
      const expected = trueGradients(of, by);
      for (const [name, device] of wasm)
        for (const chunk of [1, 3, 16, 32, 64, 999]) {
          const what = `${decay} ${JSON.stringify(shape)} ${name} chunk ${chunk}`;
          allAgree(runBackward(device, of, by, { chunk }), expected, bound(of), what);
        }
    }
});

test("delta gradients without a gradient of the final state", () => {
  const of = randomCase({ time: 40, heads: 2, keyWidth: 8, valueWidth: 24, decay: "key" });
  const { finalState: _, ...by } = cotangents(of);
  const expected = trueGradients(of, by);
  for (const [name, device] of wasm) allAgree(runBackward(device, of, by), expected, bound(of), name);
});

test("delta gradients of rows with gaps", () => {
  for (const decay of ["scalar", "key"] as const) {
    const of = randomCase({
      batch: 2,
      time: 40,
      heads: 2,
      valueHeads: 4,
      keyWidth: 7,
      valueWidth: 19,
      decay,
    });
    const by = cotangents(of);
    for (const [name, device] of wasm)
      assert.deepEqual(
        runBackward(device, of, by, { gap: 5 }),
        runBackward(device, of, by),
        `${decay} ${name}`,
      );
  }
});

test("delta gradients of packed sequences equal the host's, empty and one-token members among them", () => {
  const cuSeqlens = [0, 0, 5, 6, 100, 100, 169];
  for (const decay of ["none", "scalar", "key"] as const) {
    const shape = { time: 169, heads: 2, valueHeads: 4, keyWidth: 8, valueWidth: 20 } as const;
    const of = randomCase({ ...shape, decay, cuSeqlens });
    const by = cotangents(of);
    const expected = trueGradients(of, by);
    for (const [name, device] of wasm)
      for (const chunk of [4, 16])
        allAgree(
          runBackward(device, of, by, { chunk }),
          expected,
          bound(of),
          `${decay} ${name} chunk ${chunk}`,
        );
  }
});

test("delta gradients do not depend on the number of threads", async () => {
  // Tier C where there is one, else B.
  const devices = await Promise.all([1, 2, 3].map((threads) => openWasm({ tier: "c", threads })));
  for (const decay of ["none", "scalar", "key"] as const) {
    const of = randomCase({ time: 200, heads: 3, valueHeads: 6, keyWidth: 32, valueWidth: 32, decay });
    const by = cotangents(of);
    const [one, ...others] = devices.map((device) => runBackward(device, of, by));
    for (const other of others) assert.deepEqual(other, one, decay);
  }
  for (const device of devices) device.close();
});

test("delta gradients stay finite and right at the extremes", () => {
  const base = randomCase({ time: 48, heads: 1, keyWidth: 16, valueWidth: 16, decay: "key" });
  const change = (name: string, value: (x: number, i: number) => number): DeltaCase => ({
    ...base,
    inputs: { ...base.inputs, [name]: base.inputs[name]!.map((x, i) => Math.fround(value(x, i))) },
  });
  const cases: Record<string, DeltaCase> = {
    "g 0": change("g", () => 0),
    "g -90": change("g", () => -90),
    "g -90 on some tokens": change("g", (x, i) => (Math.floor(i / 16) % 7 === 3 ? -90 : x)),
    "beta 0": change("beta", () => 0),
    "beta 1": change("beta", () => 1),
    "beta 2": change("beta", () => 2),
    "zero keys": change("k", () => 0),
    "repeated keys": change("k", (_, i) => base.inputs["k"]![i % 16]!),
    "values of 1e4": change("v", (x) => 1e4 * x),
    "values of 1e-4": change("v", (x) => 1e-4 * x),
    "queries of 1e4": change("q", (x) => 1e4 * x),
  };
  const by = cotangents(base);
  for (const [what, of] of Object.entries(cases)) {
    const g = of.inputs["g"]!.filter((_, i) => i % 16 === 0);
    const scalar: DeltaCase = { ...of, decay: "scalar", inputs: { ...of.inputs, g } };
    for (const one of [of, scalar]) {
      const expected = trueGradients(one, by);
      for (const [name, device] of wasm) {
        const got = runBackward(device, one, by);
        for (const [input, values] of Object.entries(expected)) {
          // What crosses a decay of −90 is below the smallest float32: zero is right.
          const expectedOf = values.map((x) => (Math.abs(x) < 1e-37 ? 0 : x));
          const error = relativeRms(got[input]!, expectedOf);
          assert.ok(error <= bound(one), `${one.decay} ${what} ${name} d${input}: ${error}`);
        }
      }
    }
  }
});

test("delta backward needs little memory beside its operands", () => {
  const sizes = { batch: 1, time: 65536, heads: 8, valueHeads: 8, keyWidth: 64, valueWidth: 64 };
  const device = hostDevice();
  const slice = { storage: device.allocate("float64", 1), offset: 0 };
  const rows = { slice, stride: 512 };
  for (const decay of ["none", "scalar", "key"] as const) {
    const g = decay === "none" ? undefined : rows;
    const job = { sizes, decay, scale: 1, q: rows, eraseKey: rows, v: rows, beta: rows, g };
    const gate = decay === "key" ? 64 : decay === "none" ? 0 : 1;
    const operands = 4 * 8 * 65536 * (2 * (3 * 64 + 1 + gate) + 2 * 64);
    const backward = deltaBackward(job, {
      ...{ keptStates: slice, dO: rows, dq: rows, dEraseKey: rows, dv: rows, dBeta: rows, dg: g },
    });
    const forward = deltaForward(device, "recurrent", job, { o: rows });
    const extra = 4 * deltaPlan(job).keptLength + 2 * Math.max(backward.scratchBytes, forward.scratchBytes);
    assert.ok(extra <= 0.03 * operands, `${decay}: ${extra} of ${operands} bytes`);
  }
});
