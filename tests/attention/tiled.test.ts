/** The tiled kernels against the host loops in float64: every option, odd sizes, any cut, both backward paths. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import {
  type AttentionCase,
  assertClose,
  type Results,
  type RunOptions,
  randomCase,
  runCase,
} from "./attention-case.ts";
import { goldenCase, goldenNames } from "./golden.ts";

const host = hostDevice({ dtype: "float64" });
/** By tier and threads. */
const devices: Record<string, Device> = {};

before(async () => {
  devices.a1 = await openWasm({ tier: "a", threads: 1, poison: true });
  devices.a2 = await openWasm({ tier: "a", threads: 2, poison: true });
  // Tier C where there is one, else B.
  devices.c2 = await openWasm({ tier: "c", threads: 2, poison: true });
});

after(() => {
  for (const device of Object.values(devices)) device.close();
});

/** 8 · eps · sqrt(terms): a score sums K products, an output Tk weighted values, a key gradient T of each query head. */
function bound(of: AttentionCase): number {
  const { keyWidth, time, keyTime, queryHeads, keyHeads, valueWidth } = of.sizes;
  return 8 * 2 ** -24 * Math.sqrt(keyWidth + valueWidth + keyTime + (time * queryHeads) / keyHeads);
}

/** Runs a case on every device and both backward paths; all but the tier must agree bit for bit. */
function check(name: string, of: AttentionCase, limit = bound(of), options: RunOptions = {}): void {
  const expected = runCase(host, of);
  const onePass = runCase(devices.a1!, of, { ...options, threads: 1 });
  assertClose(onePass, expected, limit, `${name}, tier a`);
  assertClose(runCase(devices.c2!, of, { ...options, threads: 2 }), expected, limit, `${name}, tier c or b`);
  const twoPasses = runCase(devices.a2!, of, { ...options, threads: 64 });
  assert.deepEqual(twoPasses, onePass, `${name}: threads and passes change no bit`);
}

for (const name of goldenNames) {
  test(`tiles give the golden values and gradients of ${name}`, () => {
    const { of, expected } = goldenCase(name);
    for (const device of Object.values(devices)) {
      const { output, ...gradients } = runCase(device, of);
      assertClose({ output: output! }, { output: expected.output! }, 2e-6, name);
      const { output: _, ...expectedGradients } = expected;
      assertClose(gradients, expectedGradients, 1e-5, name);
    }
  });
}

const widths = [1, 3, 33, 65, 127];
for (const [i, time] of [1, 3, 33, 65, 127, 130].entries()) {
  test(`tiles take ${time} tokens at odd widths`, () => {
    const keyWidth = widths[i % 5]!;
    const valueWidth = widths[(i + 2) % 5]!;
    check("causal", randomCase({ time, keyWidth, valueWidth, seed: i }));
    check(
      "full",
      randomCase({ time, keyTime: time + 7, keyWidth, valueWidth, causal: false, seed: i }),
      undefined,
      { gap: 3 },
    );
  });
}

test("tiles take no tokens", () => {
  check("empty", randomCase({ time: 0 }));
});

const options: Record<string, Parameters<typeof randomCase>[0]> = {
  "a window of one": { time: 70, window: 1 },
  "a window narrower than a panel": { time: 140, window: 9 },
  "a window of a tile": { time: 200, window: 64 },
  "a window wider than the sequence": { time: 70, window: 500 },
  "a prefix before the queries": { time: 37, keyTime: 150, offset: 113 },
  "a prefix and a window": { time: 37, keyTime: 150, offset: 113, window: 40 },
  "queries that see less than nothing": { time: 80, keyTime: 90, offset: -30 },
  "grouped queries": { batch: 2, time: 70, queryHeads: 6, keyHeads: 2 },
  "one key head for all": { time: 70, queryHeads: 5, keyHeads: 1 },
  "a bias of its own for every row": { batch: 2, time: 70, bias: "full" },
  "a bias by heads": { batch: 2, time: 70, keyTime: 90, causal: false, bias: "heads" },
  "one bias for all": { batch: 2, time: 70, queryHeads: 4, keyHeads: 2, bias: "shared" },
  "packed sequences": { time: 205, cuSeqlens: [0, 0, 1, 70, 70, 134, 135, 205] },
  "packed sequences in a window": {
    time: 205,
    cuSeqlens: [0, 100, 100, 205],
    window: 30,
    queryHeads: 4,
    keyHeads: 2,
  },
  "packed sequences that see everything": { time: 140, cuSeqlens: [0, 3, 140], causal: false },
  "gradients of the statistics": { time: 90, statistics: true, queryHeads: 4, keyHeads: 2 },
  "gradients of the statistics in a window": { time: 90, statistics: true, window: 20 },
  "large scores": { time: 70, scale: 30 },
};

for (const [name, choices] of Object.entries(options)) {
  test(`tiles agree with the host loops: ${name}`, () => {
    const of = randomCase({ keyWidth: 20, valueWidth: 12, ...choices });
    // A score near s carries an error of eps · s that its exponential keeps.
    const score = Math.max(1, of.scale * of.sizes.keyWidth);
    check(name, of, bound(of) * score, { gap: 4 });
  });
}

function hidden(n: number, hide: (i: number) => boolean): number[] {
  return Array.from({ length: n }, (_, i) => Number(!hide(i)));
}

for (const dtype of ["uint8", "int32"] as const) {
  test(`tiles hide keys by a ${dtype} mask, whatever they hold`, () => {
    const values = hidden(2 * 100, (i) => i % 100 < 3 || (i >= 100 && i % 3 === 0) || (i > 60 && i < 80));
    const of = randomCase({ batch: 2, time: 100, keyMask: { dtype, values } });
    check("finite", of);
    const clean = runCase(devices.a1!, of);
    const poison = (rows: Float64Array) =>
      rows.map((x, i) => (values[Math.floor(i / 8)] === 0 ? Number.NaN : x));
    const poisoned: AttentionCase = { ...of, k: poison(of.k), v: poison(of.v) };
    for (const threads of [1, 64]) assert.deepEqual(runCase(devices.a1!, poisoned, { threads }), clean);
    assert.deepEqual(clean.output!.subarray(0, 24), new Float64Array(24), "rows that see nothing are zeros");
    assert.deepEqual(clean.q!.subarray(0, 24), new Float64Array(24), "and have no gradient");
  });
}

test("the output of a prefix does not depend on what follows, bit for bit", () => {
  const all = randomCase({ time: 200, keyWidth: 33, valueWidth: 17, queryHeads: 3 });
  const whole = runCase(devices.c2!, all, { backward: false });
  for (const time of [1, 15, 16, 17, 63, 64, 65, 130]) {
    const part = (rows: Float64Array, width: number) => rows.slice(0, time * 3 * width);
    const of = {
      ...randomCase({ time, keyWidth: 33, valueWidth: 17, queryHeads: 3 }),
      q: part(all.q, 33),
      k: part(all.k, 33),
      v: part(all.v, 17),
    };
    const { output, lse } = runCase(devices.c2!, of, { backward: false });
    assert.deepEqual(output, whole.output!.slice(0, output!.length), `first ${time}`);
    assert.deepEqual(lse, whole.lse!.slice(0, lse!.length));
  }
});

test("a sequence gives the same bits alone, packed, and behind a prefix in a cache", () => {
  const own = { keyWidth: 9, valueWidth: 5, queryHeads: 4, keyHeads: 2 };
  const alone = randomCase({ time: 83, ...own });
  const expected = runCase(devices.c2!, alone);
  const join = (...parts: Float64Array[]) => Float64Array.from(parts.flatMap((part) => [...part]));
  const other = randomCase({ time: 50, ...own, seed: 5 });
  const names = ["q", "k", "v", "dOutput"] as const;
  const joined = Object.fromEntries(names.map((name) => [name, join(other[name], alone[name])]));
  const packed = runCase(devices.c2!, randomCase({ time: 133, ...own, ...joined, cuSeqlens: [0, 50, 133] }));
  for (const name of ["output", "lse", "q", "k", "v"]) {
    assert.deepEqual(packed[name]!.slice(-expected[name]!.length), expected[name], name);
  }
  const late = {
    q: alone.q.slice(-10 * 4 * 9),
    dOutput: alone.dOutput.slice(-10 * 4 * 5),
    k: alone.k,
    v: alone.v,
  };
  const suffix = runCase(devices.c2!, randomCase({ time: 10, keyTime: 83, offset: 73, ...own, ...late }));
  assert.deepEqual(suffix.output, expected.output!.slice(-suffix.output!.length));
});

test("tiles of four strips agree with the host loops and with the bits of small tiles", () => {
  const of = randomCase({
    batch: 2,
    time: 300,
    queryHeads: 8,
    keyHeads: 4,
    keyWidth: 5,
    valueWidth: 3,
    window: 150,
  });
  check("many heads", of);
  const many = runCase(devices.c2!, of);
  const heads = (rows: Float64Array, all: number, width: number, count: number) =>
    Float64Array.from(
      { length: 300 * count * width },
      (_, i) => rows[Math.floor(i / (count * width)) * all * width + (i % (count * width))]!,
    );
  const part = {
    q: heads(of.q, 8, 5, 2),
    k: heads(of.k, 4, 5, 1),
    v: heads(of.v, 4, 3, 1),
    dOutput: heads(of.dOutput, 8, 3, 2),
  };
  const alone = runCase(
    devices.c2!,
    randomCase({ time: 300, queryHeads: 2, keyHeads: 1, keyWidth: 5, valueWidth: 3, window: 150, ...part }),
  );
  assert.deepEqual(alone.output, heads(many.output!, 8, 3, 2));
  assert.deepEqual(alone.q, heads(many.q!, 8, 5, 2));
  assert.deepEqual(alone.k, heads(many.k!, 4, 5, 1));
  assert.deepEqual(alone.v, heads(many.v!, 4, 3, 1));
});

test("batch rows read their own slots and lengths of a cache", () => {
  const cache = { slots: [4, 0, 2], lengths: [70, 3, 41] };
  const of = randomCase({
    batch: 3,
    time: 3,
    keyTime: 70,
    slotCount: 5,
    cache,
    queryHeads: 4,
    keyHeads: 2,
    keyWidth: 8,
  });
  const unused = (rows: Float64Array, width: number) =>
    rows.map((x, i) => {
      const slot = Math.floor(i / (70 * 2 * width));
      const row = cache.slots.indexOf(slot);
      return row < 0 || Math.floor(i / (2 * width)) % 70 >= cache.lengths[row]! ? Number.NaN : x;
    });
  const poisoned = { ...of, k: unused(of.k, 8), v: unused(of.v, 4) };
  const expected = runCase(host, poisoned);
  for (const device of Object.values(devices)) assertClose(runCase(device, poisoned), expected, bound(of));
});

test("scores of 10,000 stay finite, forward and backward", () => {
  const base = randomCase({ time: 100, keyWidth: 16, valueWidth: 8 });
  const large: AttentionCase = { ...base, q: base.q.map((x) => 100 * x), k: base.k.map((x) => 100 * x) };
  const finite = (results: Results) =>
    Object.values(results).every((values) => values.every(Number.isFinite));
  for (const device of Object.values(devices)) assert.ok(finite(runCase(device, large)));
});
