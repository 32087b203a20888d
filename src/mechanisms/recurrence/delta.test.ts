import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, test } from "node:test";
import type { CaseOptions, DeltaCase } from "../../../tests/recurrence/delta-case.ts";
import {
  randomCase,
  readGolden,
  relativeRms,
  runForward,
  runSteps,
  truth,
} from "../../../tests/recurrence/delta-case.ts";
import type { Device } from "../../device/device.ts";
import { hostDevice } from "../../device/host/host.ts";
import { openWasm } from "../../device/wasm/open.ts";
import type { DeltaForm } from "./delta.ts";
import type { Decay } from "./problem.ts";

const goldenFolder = new URL("../../../tests/golden/ops/", import.meta.url).pathname;
const goldenFiles = readdirSync(goldenFolder).filter((name) => /^(delta|gated-delta|kda)-/.test(name));
const forms: readonly DeltaForm[] = ["recurrent", "chunkwise", "parallel"];
const gates: readonly Decay[] = ["none", "head", "scalar", "key"];
const eps = 2 ** -24;

const plain = await openWasm({ tier: "a", threads: 1, poison: true });
const fused = await openWasm({ tier: "b", threads: 2, poison: true });
// Tier C where there is one, else B again.
const paired = await openWasm({ tier: "c", threads: 1, poison: true });
const devices: readonly (readonly [string, Device])[] = [
  ["host", hostDevice({ dtype: "float64", poison: true })],
  ["a", plain],
  ["b", fused],
  ["c", paired],
];
after(() => {
  plain.close();
  fused.close();
  paired.close();
});

/**
 * A value is a chain over the K key channels and, through the state, over the tokens the state remembers; the written
 * values enter it with errors of such chains themselves.
 */
function bound({ sizes }: DeltaCase): number {
  return 8 * eps * Math.sqrt(sizes.keyWidth + Math.min(sizes.time, 64));
}

function agrees(got: ArrayLike<number>, expected: ArrayLike<number>, limit: number, what: string): void {
  const error = relativeRms(got, expected);
  assert.ok(error <= limit, `${what}: relative RMS ${error} over ${limit}`);
}

function sameAsTruth(of: DeltaCase, what: string, chunks: readonly number[] = [16]): void {
  const expected = truth(of);
  for (const [name, device] of devices)
    for (const form of forms)
      for (const chunk of form === "chunkwise" ? chunks : [16]) {
        const got = runForward(device, form, of, { chunk });
        agrees(got.output, expected.output, bound(of), `${what} ${name} ${form} chunk ${chunk} output`);
        agrees(
          got.finalState,
          expected.finalState,
          bound(of),
          `${what} ${name} ${form} chunk ${chunk} state`,
        );
      }
}

for (const file of goldenFiles)
  test(`delta golden ${file} holds for every form`, () => {
    const golden = readGolden(goldenFolder + file);
    for (const [name, device] of devices)
      for (const form of forms) {
        const got = runForward(device, form, golden.case);
        const limit = name === "host" ? 1e-12 : Math.min(2e-6, bound(golden.case));
        agrees(got.output, golden.output, limit, `${name} ${form} output`);
        agrees(got.finalState, golden.finalState, limit, `${name} ${form} state`);
      }
  });

test("delta forms agree for odd widths, grouped heads and any chunk length", () => {
  const shapes: readonly CaseOptions[] = [
    { batch: 9, time: 1, heads: 5, keyWidth: 1, valueWidth: 1 },
    { time: 37, heads: 2, valueHeads: 4, keyWidth: 3, valueWidth: 33 },
    { time: 70, heads: 1, valueHeads: 3, keyWidth: 33, valueWidth: 3 },
    { batch: 2, time: 35, heads: 2, keyWidth: 65, valueWidth: 65 },
    { time: 67, heads: 1, keyWidth: 64, valueWidth: 1, initial: false },
    { time: 35, heads: 8, keyWidth: 5, valueWidth: 49 },
  ];
  for (const decay of gates)
    for (const shape of shapes)
      sameAsTruth(
        randomCase({ ...shape, decay }),
        `${decay} ${JSON.stringify(shape)}`,
        [1, 3, 16, 32, 64, 999],
      );
});

test("delta of no tokens hands the state on", () => {
  const of = randomCase({ time: 0, heads: 1, valueHeads: 2, keyWidth: 5, valueWidth: 18 });
  for (const [name, device] of devices)
    for (const form of forms) {
      const { finalState } = runForward(device, form, of);
      assert.deepEqual(finalState, of.inputs["initialState"], `${name} ${form}`);
    }
});

test("delta reads rows with gaps and writes nothing between them", () => {
  const of = randomCase({
    batch: 2,
    time: 21,
    heads: 2,
    valueHeads: 4,
    keyWidth: 7,
    valueWidth: 19,
    decay: "key",
  });
  for (const [name, device] of devices)
    for (const form of forms) {
      const dense = runForward(device, form, of);
      const strided = runForward(device, form, of, { gap: 5 });
      assert.deepEqual(strided, dense, `${name} ${form}`);
    }
});

test("delta packed sequences equal separate ones bit for bit", () => {
  const lengths = [0, 5, 1, 40, 0, 23];
  const cuSeqlens = [0, 0, 5, 6, 46, 46, 69];
  const shape = { heads: 2, valueHeads: 4, keyWidth: 8, valueWidth: 20 } as const;
  for (const decay of ["none", "scalar", "key"] as const) {
    const packed = randomCase({ ...shape, decay, time: 69, cuSeqlens });
    const pieces = lengths.map((_, n) => slicePacked(packed, n));
    for (const [name, device] of devices)
      for (const form of forms) {
        const whole = runForward(device, form, packed, { chunk: 16 });
        const separate = pieces.map((piece) => runForward(device, form, piece, { chunk: 16 }));
        const join = (part: "output" | "finalState") => separate.flatMap((one) => [...one[part]]);
        assert.deepEqual([...whole.output], join("output"), `${decay} ${name} ${form} output`);
        assert.deepEqual([...whole.finalState], join("finalState"), `${decay} ${name} ${form} state`);
      }
  }
});

/** Sequence n of a packed case alone. */
function slicePacked(of: DeltaCase, n: number): DeltaCase {
  const [from, to] = [of.cuSeqlens![n]!, of.cuSeqlens![n + 1]!];
  const { sizes } = of;
  const inputs = Object.fromEntries(
    Object.entries(of.inputs).map(([name, values]) => {
      const sequences = of.cuSeqlens!.length - 1;
      const one = values.length / (name === "initialState" ? sequences : sizes.time);
      const [first, last] = name === "initialState" ? [n, n + 1] : [from, to];
      return [name, values.slice(first * one, last * one)];
    }),
  );
  return { sizes: { ...sizes, time: to - from }, decay: of.decay, scale: of.scale, inputs };
}

/** Tokens [from, to) of a case of batch 1, entered with a state. */
function sliceTime(of: DeltaCase, from: number, to: number, initialState?: Float64Array): DeltaCase {
  const { time } = of.sizes;
  const inputs = Object.fromEntries(
    Object.entries(of.inputs).map(([name, values]) => {
      if (name === "initialState") return [name, initialState ?? values];
      const one = values.length / time;
      return [name, values.slice(from * one, to * one)];
    }),
  );
  return { ...of, sizes: { ...of.sizes, time: to - from }, inputs };
}

test("delta prefixes do not depend on what follows, not even on NaN", () => {
  for (const decay of ["none", "scalar", "key"] as const) {
    const of = randomCase({ time: 45, heads: 1, keyWidth: 20, valueWidth: 24, decay, strongest: -3 });
    for (const [name, device] of devices)
      for (const form of forms)
        for (const cut of [1, 7, 16, 30]) {
          const spoiled = Object.fromEntries(
            Object.entries(of.inputs).map(([input, values]) => {
              const one = values.length / 45;
              return [
                input,
                input === "initialState" ? values : values.map((x, i) => (i < cut * one ? x : NaN)),
              ];
            }),
          );
          const whole = runForward(device, form, of).output.slice(0, cut * 24);
          const spoilt = runForward(device, form, { ...of, inputs: spoiled }).output.slice(0, cut * 24);
          const alone = runForward(device, form, sliceTime(of, 0, cut)).output;
          assert.deepEqual(spoilt, whole, `${decay} ${name} ${form} ${cut} spoilt`);
          assert.deepEqual(alone, whole, `${decay} ${name} ${form} ${cut} alone`);
        }
  }
});

test("delta may be split anywhere", () => {
  for (const decay of ["none", "scalar", "key"] as const) {
    const of = randomCase({ time: 50, heads: 2, keyWidth: 16, valueWidth: 16, decay });
    const expected = truth(of);
    for (const [name, device] of devices)
      for (const form of forms)
        for (const cut of [0, 1, 15, 33, 50]) {
          const left = runForward(device, form, sliceTime(of, 0, cut));
          const right = runForward(device, form, sliceTime(of, cut, 50, left.finalState));
          const joined = [...left.output, ...right.output];
          agrees(joined, expected.output, bound(of), `${decay} ${name} ${form} cut ${cut}`);
          agrees(
            right.finalState,
            expected.finalState,
            bound(of),
            `${decay} ${name} ${form} cut ${cut} state`,
          );
        }
  }
});

test("delta results do not depend on threads or column blocks", async () => {
  const devicesByThreads = await Promise.all([1, 2, 3].map((threads) => openWasm({ tier: "b", threads })));
  for (const decay of ["none", "scalar", "key"] as const) {
    const few = randomCase({ time: 300, heads: 1, keyWidth: 64, valueWidth: 64, decay });
    for (const form of ["recurrent", "chunkwise"] as const) {
      const [one, ...others] = devicesByThreads.map((device) => runForward(device, form, few));
      for (const other of others) assert.deepEqual(other, one, `${decay} ${form}`);
      const many = repeatBatch(few, 8);
      const [whole] = devicesByThreads.map((device) => runForward(device, form, many));
      assert.deepEqual(whole!.output.slice(0, one!.output.length), one!.output, `${decay} ${form} blocks`);
    }
  }
  for (const device of devicesByThreads) device.close();
});

function repeatBatch(of: DeltaCase, times: number): DeltaCase {
  const inputs = Object.fromEntries(
    Object.entries(of.inputs).map(([name, values]) => {
      const all = new Float64Array(values.length * times);
      for (let b = 0; b < times; b++) all.set(values, b * values.length);
      return [name, all];
    }),
  );
  return { ...of, sizes: { ...of.sizes, batch: times }, inputs };
}

test("delta stays finite and right at the extremes", () => {
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
  for (const [what, of] of Object.entries(cases)) {
    sameAsTruth(of, `key ${what}`);
    const g = of.inputs["g"]!.filter((_, i) => i % 16 === 0);
    sameAsTruth({ ...of, decay: "scalar", inputs: { ...of.inputs, g } }, `scalar ${what}`);
  }
});

test("delta drifts no further over 16,384 tokens of slow fixed decay", () => {
  for (const decay of ["none", "head", "key"] as const) {
    const of = randomCase({ time: 16384, heads: 1, keyWidth: 16, valueWidth: 16, decay, strongest: -1e-3 });
    const beta = of.inputs["beta"]!.map((x) => Math.fround(0.02 * x));
    const slow = { ...of, inputs: { ...of.inputs, beta } };
    const expected = truth(slow);
    for (const [name, device] of devices.slice(1))
      for (const form of ["recurrent", "chunkwise"] as const) {
        const got = runForward(device, form, slow);
        agrees(got.output, expected.output, 2e-6, `${decay} ${name} ${form}`);
        agrees(got.finalState, expected.finalState, 2e-6, `${decay} ${name} ${form} state`);
      }
  }
});

test("delta with other orders of reads works token after token and is refused in chunks", () => {
  const orders = [
    { undecayedCorrection: true, readFirst: false },
    { undecayedCorrection: false, readFirst: true },
    { undecayedCorrection: true, readFirst: true },
  ];
  for (const decay of gates)
    for (const order of orders) {
      const of = randomCase({
        time: 40,
        heads: 2,
        keyWidth: 12,
        valueWidth: 20,
        decay,
        twoKeys: true,
        strongest: -2,
      });
      const expected = truth(of, { order });
      if (decay !== "none" || order.readFirst) assert.notDeepEqual(truth(of), expected);
      for (const [name, device] of devices) {
        const got = runForward(device, "recurrent", of, { order });
        agrees(got.output, expected.output, bound(of), `${decay} ${name} ${JSON.stringify(order)}`);
        agrees(got.finalState, expected.finalState, bound(of), `${decay} ${name} state`);
        assert.throws(() => runForward(device, "chunkwise", of, { order }), { code: "E_UNSUPPORTED" });
      }
    }
});

test("delta with a write key of its own", () => {
  for (const decay of gates)
    sameAsTruth(
      randomCase({ time: 40, heads: 2, keyWidth: 12, valueWidth: 20, decay, twoKeys: true }),
      decay,
    );
});

test("delta steps on slots of a slab equal the recurrent form", () => {
  for (const decay of gates)
    for (const order of [undefined, { undecayedCorrection: true, readFirst: true }]) {
      const shape = { batch: 3, time: 9, heads: 2, valueHeads: 4, keyWidth: 11, valueWidth: 21 } as const;
      const of = randomCase({ ...shape, decay, twoKeys: order !== undefined, strongest: -1 });
      for (const [name, device] of devices) {
        const whole = runForward(device, "recurrent", of, { order });
        const steps = runSteps(device, of, [4, 0, 2], { order, gap: 3 });
        agrees(steps.output, whole.output, bound(of), `${decay} ${name}`);
        agrees(steps.finalState, whole.finalState, bound(of), `${decay} ${name} state`);
        // Other orders of reads go token by token in both.
        if (order !== undefined) assert.deepEqual(steps, whole, `${decay} ${name}`);
      }
    }
});

test("delta gives the same bits whether states are kept for the backward pass or not", () => {
  for (const decay of gates)
    for (const chunk of [16, 12, 5]) {
      const of = randomCase({ time: 100, heads: 1, keyWidth: 8, valueWidth: 16, decay, strongest: -0.2 });
      for (const [name, device] of devices) {
        const whole = runForward(device, "recurrent", of, { chunk });
        assert.deepEqual(
          runForward(device, "recurrent", of, { chunk, kept: true }),
          whole,
          `${decay} ${name}`,
        );
      }
    }
});

test("delta refuses what contradicts itself", () => {
  const of = randomCase({ time: 4, heads: 2, keyWidth: 4, valueWidth: 4 });
  const { g: _, ...without } = of.inputs;
  assert.throws(() => runForward(fused, "recurrent", { ...of, inputs: without }), {
    code: "E_SHAPE",
    message: /"scalar"/,
  });
  const grouped = { ...of, sizes: { ...of.sizes, valueHeads: 3 } };
  assert.throws(() => runForward(fused, "recurrent", grouped), { code: "E_SHAPE", message: /HV 3, H 2/ });
  assert.throws(() => runForward(fused, "chunkwise", of, { chunk: 0 }), { code: "E_CONFIG" });
});
