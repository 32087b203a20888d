/** Parts joined by their log-sum-exp: equal to attention over all keys at once, with gradients through both. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Device, Slice } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import {
  attentionJoin,
  attentionJoinBackward,
  attentionMerge,
} from "../../src/mechanisms/attention/attention.ts";
import {
  assertClose,
  normals,
  Placement,
  type Results,
  randomCase,
  runCase,
  uniform,
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

interface Stack {
  readonly rows: number;
  readonly valueWidth: number;
  readonly parts: number;
  readonly outputs: Float64Array;
  readonly lses: Float64Array;
  readonly dOutput: Float64Array;
  readonly dLse?: Float64Array;
}

function randomStack(rows: number, valueWidth: number, parts: number): Stack {
  const next = uniform(rows + parts);
  const count = rows * parts;
  const lses = normals(next, count).map((x) => 3 * x);
  return {
    ...{ rows, valueWidth, parts, lses, outputs: normals(next, count * valueWidth) },
    ...{ dOutput: normals(next, rows * valueWidth), dLse: normals(next, rows) },
  };
}

/** Merges a stack, or joins its two parts and takes their gradients. */
function run(device: Device, stack: Stack, as: "merge" | "join"): Results {
  const { rows, valueWidth, parts } = stack;
  const on = new Placement(device, 0);
  const flat = (length: number, values?: Float64Array): Slice => on.flat(on.dtype, length, values);
  const part = (values: boolean, n: number, count: number) => ({
    output: flat(count * rows * valueWidth, values ? stack.outputs.slice(n * rows * valueWidth) : undefined),
    lse: flat(count * rows, values ? stack.lses.slice(n * rows) : undefined),
  });
  const merged = { output: flat(rows * valueWidth), lse: flat(rows) };
  const cotangent = {
    output: flat(rows * valueWidth, stack.dOutput),
    lse: stack.dLse && flat(rows, stack.dLse),
  };
  const read = (slices: readonly Slice[]) =>
    Float64Array.from(slices.flatMap((slice) => [...on.readFlat(slice)]));
  let gradients: { readonly output: Slice; readonly lse: Slice }[] = [];
  if (as === "merge") device.run(attentionMerge(stack, part(true, 0, parts), merged));
  else {
    const firstOnly = {
      ...stack,
      outputs: stack.outputs.slice(0, rows * valueWidth),
      lses: stack.lses.slice(0, rows),
    };
    const first = { output: flat(rows * valueWidth, firstOnly.outputs), lse: flat(rows, firstOnly.lses) };
    const second = part(true, 1, 1);
    const [one, two] = [part(false, 0, 1), part(false, 1, 1)];
    gradients = [one, two];
    device.run(attentionJoin(stack, first, second, merged));
    device.run(attentionJoinBackward(stack, [first, second], merged, cotangent, [one, two]));
  }
  const results = {
    output: on.readFlat(merged.output),
    lse: on.readFlat(merged.lse),
    dOutputs: read(gradients.map((gradient) => gradient.output)),
    dLses: read(gradients.map((gradient) => gradient.lse)),
  };
  on.release();
  return results;
}

function bound(device: Device, stack: Stack): number {
  const eps = device.defaultDtype === "float64" ? 2 ** -53 : 2 ** -24;
  return 8 * eps * Math.sqrt(stack.parts + stack.valueWidth);
}

for (const [rows, valueWidth, parts] of [
  [1, 1, 1],
  [130, 7, 3],
  [70, 64, 8],
] as const) {
  test(`${parts} parts of ${rows} rows merge on every device`, () => {
    const stack = randomStack(rows, valueWidth, parts);
    const expected = run(host, stack, "merge");
    for (const device of Object.values(devices))
      assertClose(run(device, stack, "merge"), expected, bound(device, stack));
  });
}

test("rows of a stack that come head after head are merged to heads side by side", () => {
  const [batch, heads, time, parts, valueWidth] = [2, 3, 35, 2, 6];
  const rows = batch * heads * time;
  const stack = randomStack(rows, valueWidth, parts);
  for (const device of Object.values(devices)) {
    const plain = run(device, stack, "merge");
    const on = new Placement(device, 0);
    const flat = (length: number, values?: Float64Array): Slice => on.flat(on.dtype, length, values);
    const given = {
      output: flat(parts * rows * valueWidth, stack.outputs),
      lse: flat(parts * rows, stack.lses),
    };
    const merged = { output: flat(rows * valueWidth), lse: flat(rows) };
    device.run(attentionMerge({ rows, valueWidth, parts, heads, time }, given, merged));
    const [output, lse] = [on.readFlat(merged.output), on.readFlat(merged.lse)];
    on.release();
    for (let row = 0; row < rows; row++) {
      const [line, t] = [Math.floor(row / time), row % time];
      const to = (Math.floor(line / heads) * time + t) * heads + (line % heads);
      assert.equal(lse[to], plain["lse"]![row]);
      const own = plain["output"]!.slice(row * valueWidth, (row + 1) * valueWidth);
      assert.deepEqual(output.slice(to * valueWidth, (to + 1) * valueWidth), own);
    }
  }
});

for (const [rows, valueWidth] of [
  [1, 1],
  [130, 7],
  [70, 64],
] as const) {
  test(`two parts of ${rows} rows join on every device, with their gradients`, () => {
    const stack = randomStack(rows, valueWidth, 2);
    const expected = run(host, stack, "join");
    for (const device of Object.values(devices))
      assertClose(run(device, stack, "join"), expected, bound(device, stack));
  });
}

test("joining two parts gives the bits of merging a stack of two", () => {
  const stack = randomStack(130, 19, 2);
  for (const device of Object.values(devices)) {
    const joined = run(device, stack, "join");
    const merged = run(device, stack, "merge");
    for (const name of ["output", "lse"]) assert.deepEqual(joined[name], merged[name]);
  }
});

test("gradients of a join agree with central differences", () => {
  const stack = randomStack(5, 3, 2);
  const { dOutputs, dLses } = run(host, stack, "join");
  const next = uniform(3);
  const along = { outputs: normals(next, stack.outputs.length), lses: normals(next, stack.lses.length) };
  const loss = (step: number): number => {
    const outputs = stack.outputs.map((x, i) => x + step * along.outputs[i]!);
    const lses = stack.lses.map((x, i) => x + step * along.lses[i]!);
    const { output, lse } = run(host, { ...stack, outputs, lses }, "join");
    const dot = (x: Float64Array, y: Float64Array) => x.reduce((sum, value, i) => sum + value * y[i]!, 0);
    return dot(output!, stack.dOutput) + dot(lse!, stack.dLse!);
  };
  const step = 1e-5;
  const expected = (loss(step) - loss(-step)) / (2 * step);
  let actual = 0;
  for (const [i, x] of dOutputs!.entries()) actual += x * along.outputs[i]!;
  for (const [i, x] of dLses!.entries()) actual += x * along.lses[i]!;
  assert.ok(Math.abs(actual - expected) <= 1e-8 * Math.abs(expected), `${actual} ${expected}`);
});

test("a part that saw nothing counts for nothing, whatever it holds", () => {
  const base = randomStack(3, 5, 2);
  const lses = base.lses.slice();
  lses[0] = Number.NEGATIVE_INFINITY; // row 0 of part 0
  lses[1] = Number.NEGATIVE_INFINITY; // row 1 of both
  lses[4] = Number.NEGATIVE_INFINITY;
  const outputs = base.outputs.slice().fill(Number.NaN, 0, 5);
  for (const device of Object.values(devices)) {
    for (const as of ["merge", "join"] as const) {
      const results = run(device, { ...base, lses, outputs }, as);
      assertClose(
        { row: results.output!.slice(0, 5) },
        { row: base.outputs.slice(15, 20) },
        bound(device, base),
      );
      assert.deepEqual(results.output!.slice(5, 10), new Float64Array(5));
      assert.equal(results.lse![1], Number.NEGATIVE_INFINITY);
      if (as === "merge") continue;
      assert.deepEqual(results.dOutputs!.slice(0, 10), new Float64Array(10));
      assert.ok(results.dLses!.every(Number.isFinite));
    }
  }
});

test("a window and everything before it join to causal attention, gradients included", () => {
  const of = randomCase({ time: 40, keyWidth: 8, valueWidth: 6, queryHeads: 2 });
  const whole = runCase(host, of);
  for (const device of Object.values(devices)) {
    const near = runCase(device, { ...of, window: 10 });
    const far = runCase(device, { ...of, offset: -10 });
    const rows = 80;
    const join = (name: string) => Float64Array.from([...near[name]!, ...far[name]!]);
    const stack = {
      rows,
      valueWidth: 6,
      parts: 2,
      outputs: join("output"),
      lses: join("lse"),
      dOutput: of.dOutput,
    };
    const { output, lse, dOutputs, dLses } = run(device, stack, "join");
    const limit = (device.defaultDtype === "float64" ? 2 ** -53 : 2 ** -24) * 8 * Math.sqrt(8 + 6 + 40 + 40);
    assertClose(
      { output: output!, lse: lse! },
      { output: whole.output!, lse: whole.lse! },
      limit,
      device.kind,
    );
    const part = (n: number) => ({
      dOutput: dOutputs!.slice(n * 480, (n + 1) * 480),
      dLse: dLses!.slice(n * rows, (n + 1) * rows),
    });
    const first = runCase(device, { ...of, window: 10, ...part(0) });
    const second = runCase(device, { ...of, offset: -10, ...part(1) });
    const summed = (name: string) => first[name]!.map((x, i) => x + second[name]![i]!);
    const gradients = { q: summed("q"), k: summed("k"), v: summed("v") };
    assertClose(gradients, { q: whole.q!, k: whole.k!, v: whole.v! }, limit, device.kind);
  }
});
