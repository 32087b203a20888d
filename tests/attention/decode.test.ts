/** Decoding and the matrix form against the tiled host loops in float64. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import {
  attentionDecode,
  attentionMatrix,
  decodePartials,
} from "../../src/mechanisms/attention/attention.ts";
import { softmaxWeights } from "../../src/mechanisms/softmax/reference.ts";
import {
  type AttentionCase,
  assertClose,
  Placement,
  placeProblem,
  type Results,
  randomCase,
  runCase,
} from "./attention-case.ts";

const host = hostDevice({ dtype: "float64", poison: true });
const devices: Record<string, Device> = { host };

before(async () => {
  devices.a1 = await openWasm({ tier: "a", threads: 1, poison: true });
  // Tier C where there is one, else B.
  devices.c2 = await openWasm({ tier: "c", threads: 2, poison: true });
});

after(() => {
  for (const device of Object.values(devices)) device.close();
});

/** 8 · eps · sqrt(terms) with the eps of the device's dtype. */
function bound(device: Device, of: AttentionCase): number {
  const eps = device.defaultDtype === "float64" ? 2 ** -53 : 2 ** -24;
  return 8 * eps * Math.sqrt(of.sizes.keyWidth + of.sizes.keyTime);
}

/** Operands of a case on a device, outputs unwritten. */
function place(device: Device, of: AttentionCase, gap: number) {
  const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = of.sizes;
  const rows = of.k.length / (keyTime * keyHeads * keyWidth);
  const on = new Placement(device, gap);
  const shape = [batch, time, queryHeads, valueWidth] as const;
  return {
    ...{ on, shape, problem: placeProblem(on, of) },
    q: on.rows([batch, time, queryHeads, keyWidth], of.q),
    k: on.rows([rows, keyTime, keyHeads, keyWidth], of.k),
    v: on.rows([rows, keyTime, keyHeads, valueWidth], of.v),
    output: on.rows(shape),
  };
}

function decode(device: Device, of: AttentionCase, gap = 0): Results {
  const { on, shape, problem, ...operands } = place(device, of, gap);
  const lse = on.flat(on.dtype, of.sizes.batch * of.sizes.queryHeads);
  const partials = on.flat(on.dtype, decodePartials(problem));
  for (const dispatch of attentionDecode(problem, { ...operands, lse, partials })) device.run(dispatch);
  on.readFlat(partials);
  const results = { output: on.readRows(operands.output, shape), lse: on.readFlat(lse) };
  on.release();
  return results;
}

const decoding: Record<string, Parameters<typeof randomCase>[0]> = {
  "one key": { keyTime: 1 },
  "odd widths and lengths": { keyTime: 255, keyWidth: 33, valueWidth: 7 },
  "narrow rows": { keyTime: 10, keyWidth: 1, valueWidth: 3 },
  "blocks of keys": { batch: 2, keyTime: 2060, keyWidth: 16, valueWidth: 20, queryHeads: 6, keyHeads: 2 },
  "wide rows": { batch: 2, keyTime: 391, keyWidth: 96, valueWidth: 69, queryHeads: 6, keyHeads: 2 },
  "hidden keys of wide rows": {
    ...{ keyTime: 70, keyWidth: 64, valueWidth: 32 },
    keyMask: { dtype: "int32", values: Array.from({ length: 70 }, (_, i) => Number(i % 3 > 0)) },
  },
  "blocks of wide rows": { keyTime: 275, keyWidth: 128, valueWidth: 128, queryHeads: 8, keyHeads: 8 },
  "a window across blocks": { keyTime: 1300, window: 301 },
  "rows of a cache": {
    ...{ batch: 3, keyTime: 1030, slotCount: 4, queryHeads: 4, keyHeads: 2 },
    cache: { slots: [3, 0, 1], lengths: [1030, 0, 258] },
  },
  "a window over a cache": {
    ...{ batch: 2, keyTime: 300, slotCount: 2, window: 20 },
    cache: { slots: [1, 0], lengths: [5, 290] },
  },
  "hidden keys": {
    ...{ batch: 2, keyTime: 300 },
    keyMask: {
      dtype: "uint8",
      values: Array.from({ length: 600 }, (_, i) => Number(i % 300 > 20 && i % 7 > 0)),
    },
  },
};

for (const [name, choices] of Object.entries(decoding)) {
  test(`decoding equals tiled attention of one query: ${name}`, () => {
    const of = randomCase({
      time: 1,
      causal: true,
      offset: choices.cache ? 0 : choices.keyTime! - 1,
      ...choices,
    });
    const { output, lse } = runCase(host, of, { backward: false });
    for (const device of Object.values(devices)) {
      assertClose(decode(device, of, 3), { output: output!, lse: lse! }, bound(device, of), device.kind);
    }
  });
}

test("decoding reads nothing of hidden keys and unused slots", () => {
  const cache = { slots: [2], lengths: [300] };
  const values = Array.from({ length: 400 }, (_, i) => Number(i > 9));
  const of = randomCase({ time: 1, keyTime: 400, slotCount: 3, cache, keyMask: { dtype: "int32", values } });
  const used = (i: number) =>
    Math.floor(i / 3200) === 2 && Math.floor(i / 8) % 400 < 300 && Math.floor(i / 8) % 400 > 9;
  const poison = (rows: Float64Array) => rows.map((x, i) => (used(i) ? x : Number.NaN));
  for (const device of Object.values(devices)) {
    assert.deepEqual(decode(device, { ...of, k: poison(of.k), v: poison(of.v) }), decode(device, of));
  }
});

const matrices: Record<string, Parameters<typeof randomCase>[0]> = {
  "causal at odd widths": { batch: 2, time: 70, keyWidth: 5, valueWidth: 3, queryHeads: 4, keyHeads: 2 },
  "full over more keys": { time: 65, keyTime: 131, causal: false },
  "a window and a prefix": { time: 20, keyTime: 90, offset: 70, window: 13 },
  "hidden keys": {
    time: 70,
    keyMask: { dtype: "uint8", values: Array.from({ length: 70 }, (_, i) => Number(i > 2 && i % 5 > 0)) },
  },
  "a bias": { batch: 2, time: 40, bias: "full" },
};

for (const [name, choices] of Object.entries(matrices)) {
  test(`the matrix form gives output and weights: ${name}`, () => {
    const of = randomCase(choices);
    const { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth } = of.sizes;
    const values = (data: ArrayLike<number>, ...shape: number[]) => ({
      data: Float64Array.from(data),
      shape,
    });
    const inputs = {
      q: values(of.q, batch, time, queryHeads, keyWidth),
      k: values(of.k, batch, keyTime, keyHeads, keyWidth),
      v: values(of.v, batch, keyTime, keyHeads, valueWidth),
      ...(of.keyMask && { keyMask: values(of.keyMask.values, batch, keyTime) }),
      ...(of.bias && { bias: values(of.bias.values, batch, queryHeads, time, keyTime) }),
    };
    const { causal, window } = of;
    const weights = softmaxWeights(inputs, { causal, ...(window === undefined ? {} : { window }) }).data;
    const { output } = runCase(host, of, { backward: false });
    for (const device of Object.values(devices)) {
      const { on, shape, problem, ...operands } = place(device, of, 3);
      const to = on.flat(on.dtype, batch * queryHeads * time * keyTime);
      device.run(attentionMatrix(problem, { ...operands, weights: to }));
      const results = { output: on.readRows(operands.output, shape), weights: on.readFlat(to) };
      assertClose(results, { output: output!, weights }, bound(device, of), device.kind);
      on.release();
    }
  });
}

test("the matrix form keeps packed sequences apart", () => {
  const of = randomCase({ time: 140, cuSeqlens: [0, 3, 3, 80, 140] });
  const { output } = runCase(host, of, { backward: false });
  for (const device of Object.values(devices)) {
    const { on, shape, problem, ...operands } = place(device, of, 0);
    const weights = on.flat(on.dtype, 2 * 140 * 140);
    device.run(attentionMatrix(problem, { ...operands, weights }));
    assertClose({ output: on.readRows(operands.output, shape) }, { output: output! }, bound(device, of));
    const rows = on.readFlat(weights);
    for (let i = 3; i < 80; i++) {
      const row = [...rows.subarray(i * 140, (i + 1) * 140)];
      assert.ok(
        row.every((x, j) => (j >= 3 && j <= i ? x > 0 : x === 0)),
        `row ${i}`,
      );
    }
    on.release();
  }
});

test("decoding refuses more than one query", () => {
  const of = randomCase({ time: 2 });
  assert.throws(() => decode(host, of), { code: "E_SHAPE" });
});
