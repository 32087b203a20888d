/** The float64 references of the softmax family against other people's values and against each other. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { reference as linear } from "../../src/mechanisms/linear/reference.ts";
import { reference as linformer } from "../../src/mechanisms/linformer/reference.ts";
import { reference as lsh } from "../../src/mechanisms/lsh/reference.ts";
import type { Values } from "../../src/mechanisms/mechanism.ts";
import { reference as nystrom } from "../../src/mechanisms/nystrom/reference.ts";
import { reference as slidingWindow } from "../../src/mechanisms/sliding-window/reference.ts";
import { reference as softmax } from "../../src/mechanisms/softmax/reference.ts";
import { normals, relativeError, uniform } from "./attention-case.ts";
import { goldenNames, readGolden } from "./golden.ts";

function random(next: () => number, ...shape: number[]): Values {
  return {
    data: normals(
      next,
      shape.reduce((a, b) => a * b, 1),
    ),
    shape,
  };
}

/** q, k, v of one shape. */
function inputsOf(seed: number, [B, T, H, K, V]: readonly [number, number, number, number, number]) {
  const next = uniform(seed);
  return { q: random(next, B, T, H, K), k: random(next, B, T, H, K), v: random(next, B, T, H, V) };
}

function assertSame(actual: Values | undefined, expected: Values | undefined, bound = 1e-12): void {
  assert.deepEqual(actual!.shape, expected!.shape);
  const error = relativeError(actual!.data, expected!.data);
  assert.ok(error <= bound, `expected a relative error <= ${bound}, got ${error}`);
}

/** Tokens [from, to) of a tensor [B,T,...]. */
function tokens({ data, shape }: Values, from: number, to: number): Values {
  const [B, T, ...rest] = shape as [number, number, ...number[]];
  const width = rest.reduce((a, b) => a * b, 1);
  const rows = Array.from({ length: B }, (_, b) => [
    ...data.subarray((b * T + from) * width, (b * T + to) * width),
  ]);
  return { data: Float64Array.from(rows.flat()), shape: [B, to - from, ...rest] };
}

for (const name of goldenNames) {
  test(`the softmax reference gives the golden output of ${name}`, () => {
    const { meta, tensors } = readGolden(name);
    const inputs = { q: tensors["in.q"]!, k: tensors["in.k"]!, v: tensors["in.v"]! };
    const window = meta["window"];
    const options = { causal: meta["causal"] === true, ...(typeof window === "number" ? { window } : {}) };
    assertSame(softmax(inputs, options).output, tensors["out.output"]);
  });
}

test("the Nyström reference gives the golden output of nystrom-s0", () => {
  const { meta, tensors } = readGolden("nystrom-s0");
  const inputs = { q: tensors["in.q"]!, k: tensors["in.k"]!, v: tensors["in.v"]! };
  const options = { landmarks: Number(meta["landmarks"]), iterations: Number(meta["pinvIterations"]) };
  assertSame(nystrom(inputs, options).output, tensors["out.output"]);
});

test("Nyström with as many landmarks as tokens is softmax", () => {
  const inputs = inputsOf(1, [2, 9, 2, 5, 4]);
  assertSame(nystrom(inputs, { landmarks: 9 }).output, softmax(inputs, { causal: false }).output);
});

test("Nyström's segments are those of the repeated tokens where landmarks do not divide them", () => {
  // 7 tokens and 3 landmarks: segments of 2, 2 and 3; equal tokens inside each make the landmarks exact.
  const base = inputsOf(2, [1, 3, 1, 4, 3]);
  const spread = ({ data, shape }: Values): Values => {
    const width = shape[3]!;
    const rows = [0, 0, 1, 1, 2, 2, 2].map((n) => [...data.subarray(n * width, (n + 1) * width)]);
    return { data: Float64Array.from(rows.flat()), shape: [1, 7, 1, width] };
  };
  const inputs = { q: spread(base.q), k: spread(base.k), v: spread(base.v) };
  const { output } = nystrom(inputs, { landmarks: 3, iterations: 60 });
  assertSame(output, softmax(inputs, { causal: false }).output, 1e-9);
});

test("a Nyström row does not depend on its batch mates", () => {
  const inputs = inputsOf(3, [2, 10, 2, 4, 4]);
  const alone = Object.fromEntries(
    Object.entries(inputs).map(([name, x]) => [
      name,
      { data: x.data.slice(x.data.length / 2), shape: [1, ...x.shape.slice(1)] },
    ]),
  );
  const whole = nystrom(inputs, { landmarks: 4 }).output;
  assert.deepEqual(nystrom(alone, { landmarks: 4 }).output.data, whole.data.slice(whole.data.length / 2));
});

test("a Nyström convolution is added over time", () => {
  const inputs = inputsOf(4, [1, 6, 1, 4, 2]);
  const convolution = { data: Float64Array.of(0, 0, 2), shape: [1, 3] };
  const plain = nystrom(inputs, { landmarks: 2 }).output;
  const { output } = nystrom({ ...inputs, convolution }, { landmarks: 2 });
  const expected = plain.data.map((x, i) => x + (i < 10 ? 2 * inputs.v.data[i + 2]! : 0));
  assert.ok(relativeError(output.data, expected) <= 1e-15);
});

const identity = (n: number): Values => ({
  data: Float64Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0)),
  shape: [1, n, n],
});

test("Linformer with an identity projection is softmax, and takes the first columns of a longer one", () => {
  const inputs = inputsOf(5, [2, 6, 2, 3, 4]);
  const expected = softmax(inputs, { causal: false }).output;
  assertSame(linformer({ ...inputs, keyProjection: identity(6) }).output, expected);
  const longer = identity(9);
  const first = { data: longer.data.subarray(0, 6 * 9), shape: [1, 6, 9] };
  assertSame(linformer({ ...inputs, keyProjection: first, valueProjection: first }).output, expected);
});

test("a sliding window over everything is softmax", () => {
  const inputs = inputsOf(6, [2, 9, 2, 4, 3]);
  const windowFactor = { data: Float64Array.of(0.1, 0.7), shape: [2] };
  const expected = softmax(inputs).output;
  for (const window of [9, 100])
    assertSame(slidingWindow({ ...inputs, windowFactor }, { window }).output, expected);
  const gate = { data: new Float64Array(2 * 9 * 2).fill(1), shape: [2, 9, 2] };
  assertSame(slidingWindow({ ...inputs, gate }, { window: 9, join: "gated" }).output, expected);
});

test("a sliding window of nothing is linear attention", () => {
  const inputs = inputsOf(7, [2, 9, 2, 4, 3]);
  const { output, finalState, finalNormalizer } = linear(inputs, { eps: 0 });
  const results = slidingWindow(inputs, { window: 0 });
  assertSame(results.output, output);
  assertSame(results.finalState, finalState);
  assertSame(results.finalNormalizer, finalNormalizer);
});

for (const join of ["joint", "gated"] as const) {
  test(`a ${join} sliding window carries its state over any cut`, () => {
    const base = inputsOf(8, [2, 11, 2, 4, 3]);
    const next = uniform(9);
    const features = { queryFeatures: random(next, 2, 4, 5), keyFeatures: random(next, 2, 4, 5) };
    const gate = { data: random(next, 2, 11, 2).data.map((x) => 1 / (1 + Math.exp(-x))), shape: [2, 11, 2] };
    const options = { window: 4, join };
    const whole = slidingWindow({ ...base, ...features, gate }, options);
    for (const cut of [1, 3, 6, 10]) {
      const part = (from: number, to: number) => ({
        ...{ q: tokens(base.q, from, to), k: tokens(base.k, from, to), v: tokens(base.v, from, to) },
        ...{ ...features, gate: tokens(gate, from, to) },
      });
      const first = slidingWindow(part(0, cut), options);
      const { finalState, finalNormalizer, finalKeys, finalValues } = first;
      const state = { initialState: finalState, initialNormalizer: finalNormalizer };
      const buffer = { initialKeys: finalKeys, initialValues: finalValues };
      const second = slidingWindow({ ...part(cut, 11), ...state, ...buffer }, options);
      assertSame(second.output, tokens(whole.output, cut, 11));
      for (const name of ["finalState", "finalNormalizer", "finalKeys", "finalValues"] as const) {
        assertSame(second[name], whole[name]);
      }
    }
  });
}

test("LSH with one chunk for all is shared-query-key softmax without the token itself", () => {
  const { q, v } = inputsOf(10, [1, 8, 2, 4, 3]);
  const rotations = random(uniform(11), 2, 4, 3);
  const { output } = lsh({ q, v, rotations }, { chunk: 8, causal: false });
  const k = { data: q.data.slice(), shape: q.shape };
  for (let r = 0; r < 16; r++) {
    const line = k.data.subarray(r * 4, r * 4 + 4);
    const norm = Math.sqrt(line.reduce((sum, x) => sum + x * x, 1e-6));
    for (let c = 0; c < 4; c++) line[c]! /= norm;
  }
  const bias = { data: new Float64Array(2 * 64), shape: [1, 2, 8, 8] };
  for (let i = 0; i < 16; i++) bias.data[i * 8 + (i % 8)] = Number.NEGATIVE_INFINITY;
  assertSame(output, softmax({ q, k, v, bias }, { causal: false }).output);
});

test("LSH gives the first causal token its own value, and nothing from the future", () => {
  const { q, v } = inputsOf(12, [1, 30, 1, 4, 3]);
  const rotations = random(uniform(13), 4, 4, 4);
  const { output } = lsh({ q, v, rotations }, { chunk: 4 });
  assert.deepEqual(output.data.slice(0, 3), v.data.slice(0, 3));
  const later = { data: v.data.map((x, i) => (i >= 60 ? 1e6 : x)), shape: v.shape };
  assert.deepEqual(
    lsh({ q, v: later, rotations }, { chunk: 4 }).output.data.slice(0, 60),
    output.data.slice(0, 60),
  );
});

test("LSH comes closer to softmax with more rounds", () => {
  const { q, v } = inputsOf(14, [1, 64, 1, 8, 4]);
  const all = lsh({ q, v, rotations: random(uniform(1), 1, 8, 2) }, { chunk: 64, causal: false }).output.data;
  const errors = [1, 4, 16, 64].map((rounds) => {
    const rotations = random(uniform(15), rounds, 8, 4);
    return relativeError(lsh({ q, v, rotations }, { chunk: 4, causal: false }).output.data, all);
  });
  for (let n = 1; n < errors.length; n++) assert.ok(errors[n]! < errors[n - 1]!, `${errors}`);
});
