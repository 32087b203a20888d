/** Feature maps: what each declares holds, and random ones estimate their kernels without bias. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { gradCheck } from "../../src/autograd/grad-check.ts";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasmSync } from "../../src/device/wasm/open.ts";
import { favorMap } from "../../src/mechanisms/feature-maps/favor.ts";
import { fourierMap } from "../../src/mechanisms/feature-maps/fourier.ts";
import { type FeatureMap, featureMap, featureMaps } from "../../src/mechanisms/feature-maps/index.ts";
import { linearForms } from "../../src/mechanisms/linear/forms.ts";
import type { Form } from "../../src/mechanisms/mechanism.ts";
import { performer } from "../../src/mechanisms/performer/index.ts";
import { PerformerLayer } from "../../src/mechanisms/performer/layer.ts";
import { softmax } from "../../src/mechanisms/softmax/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { assertWithin, initialized, normalTensor, outputOf, relativeError } from "./layer-case.ts";

const host = hostDevice({ dtype: "float64", poison: true });
const wasm = openWasmSync({ tier: "a", threads: 1, poison: true });
after(() => {
  host.close();
  wasm.close();
});

const K = 6;

/** A map with the random part that it may need drawn from a seed. */
function apply(map: FeatureMap, x: Tensor, seed = 1, count?: number): Tensor {
  const drawn = map.draw?.(x.shape.at(-1)!, new Random(seed, "features"), count);
  const projection = drawn && tensor(x.device, drawn.values, [drawn.count, x.shape.at(-1)!]);
  return map.apply(x, projection);
}

/** In plain numbers what a map without a random part is. */
const plain: Readonly<Record<string, (x: readonly number[]) => number[]>> = {
  "elu+1": (x) => x.map((a) => (a < 0 ? Math.exp(a) : a + 1)),
  relu: (x) => x.map((a) => Math.max(a, 0)),
  exp: (x) => x.map(Math.exp),
  softplus: (x) => x.map((a) => Math.log1p(Math.exp(a))),
  identity: (x) => [...x],
  l2: (x) => x.map((a) => a / Math.sqrt(x.reduce((sum, b) => sum + b * b, 0) + 1e-6)),
  "taylor-2": (x) => {
    const width = x.length;
    const squares = x.flatMap((a) => x.map((b) => (a * b) / Math.sqrt(2 * width)));
    return [1, ...x.map((a) => a * width ** -0.25), ...squares];
  },
  "dpfp-3": (x) => {
    const y = [...x.map((a) => Math.max(a, 0)), ...x.map((a) => Math.max(-a, 0))];
    return [1, 2, 3].flatMap((r) => y.map((a, i) => a * y[(i - r + y.length) % y.length]!));
  },
};

for (const map of featureMaps) {
  test(`map ${map.id} has the width, sign and gradient that it declares`, () => {
    const x = normalTensor(host, "x", [2, 5, 3, K], true);
    const y = scope(host, () => noGrad(() => Float64Array.from(apply(map, x).dataSync())));
    assert.equal(y.length, 2 * 5 * 3 * map.width(K));
    assert.ok(map.equation.length > 0);
    if (map.isPositive) assert.ok(positiveKernel(map), "φ(q)·φ(k) > 0");
    if (!map.isDifferentiable) return;
    const direction = (stream: number, i: number): number => Math.cos(17 * stream + 3 * i);
    const rows = gradCheck(host, (inputs) => ({ y: apply(map, inputs["x"]!) }), { x }, direction, 1e-5);
    for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
  });

  const formula = plain[map.id];
  test(`map ${map.id} is ${map.id in plain ? "its formula" : "the same on every device"}`, () => {
    const on = (device: typeof host | typeof wasm): Float64Array =>
      scope(device, () => Float64Array.from(apply(map, normalTensor(device, "x", [1, 4, 2, K])).dataSync()));
    assertWithin(on(wasm), on(host), 8 * 2 ** -24 * Math.sqrt(2 * K), "float32");
    if (formula === undefined) return;
    const values = [...normalTensor(host, "x", [1, 4, 2, K]).dataSync()];
    const rows = Array.from({ length: 8 }, (_, i) => formula(values.slice(i * K, (i + 1) * K)));
    assertWithin(on(host), rows.flat(), 1e-14, "formula");
  });
}

/** φ(q)·φ(k) over far apart and opposite vectors. */
function positiveKernel(map: FeatureMap): boolean {
  return scope(host, () => {
    const values = new Random(4).normal(new Float64Array(40 * K)).map((a) => 3 * a);
    const phi = apply(map, tensor(host, values, [1, 40, 1, K])).dataSync();
    const F = phi.length / 40;
    for (let i = 0; i < 40; i++)
      for (let j = 0; j < 40; j++) {
        let sum = 0;
        for (let f = 0; f < F; f++) sum += phi[i * F + f]! * phi[j * F + f]!;
        if (!(sum > 0)) return false;
      }
    return true;
  });
}

/** φ(q_i)·φ(k_i) of pairs for many draws: mean and root mean square error relative to the kernel. */
function estimates(
  map: FeatureMap,
  kernel: (q: number[], k: number[]) => number,
  count: number,
  draws: number,
) {
  const pairs = 12;
  // Short vectors: the estimates of long ones have a tail that no number of draws sees the end of.
  const rows = (name: string): number[][] => {
    const values = [...new Random(6, name).normal(new Float64Array(pairs * K))].map((a) => 0.4 * a);
    return Array.from({ length: pairs }, (_, i) => values.slice(i * K, (i + 1) * K));
  };
  const [q, k] = [rows("q"), rows("k")];
  const sums = new Float64Array(pairs);
  let squares = 0;
  for (let draw = 0; draw < draws; draw++) {
    const phi = scope(host, () =>
      Float64Array.from(
        apply(map, tensor(host, [...q, ...k].flat(), [1, 2 * pairs, 1, K]), 100 + draw, count).dataSync(),
      ),
    );
    const F = phi.length / (2 * pairs);
    for (let i = 0; i < pairs; i++) {
      let estimate = 0;
      for (let f = 0; f < F; f++) estimate += phi[i * F + f]! * phi[(pairs + i) * F + f]!;
      const ratio = estimate / kernel(q[i]!, k[i]!);
      sums[i]! += ratio;
      squares += (ratio - 1) ** 2;
    }
  }
  const rms = Math.sqrt(squares / (draws * pairs));
  return { means: sums.map((sum) => sum / draws), rms };
}

const dot = (a: number[], b: number[]): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
const kernels: readonly (readonly [FeatureMap, string, (q: number[], k: number[]) => number])[] = [
  [favorMap, "the softmax kernel exp(q·k/√K)", (q, k) => Math.exp(dot(q, k) / Math.sqrt(K))],
  [
    fourierMap,
    "the Gaussian kernel exp(−|q − k|²/2)",
    (q, k) => Math.exp(-dot(q, q) / 2 - dot(k, k) / 2 + dot(q, k)),
  ],
];

for (const [map, name, kernel] of kernels) {
  test(`map ${map.id} estimates ${name} without bias`, () => {
    const draws = 2000;
    const { means, rms } = estimates(map, kernel, 2 * K, draws);
    // The mean of that many draws lies within four of its standard deviations, each near rms/√draws.
    for (const mean of means)
      assert.ok(Math.abs(mean - 1) < 8 * (rms / Math.sqrt(draws)), `${mean}, rms ${rms}`);
    assert.ok(rms > 0.01, "single draws do differ");
  });

  test(`map ${map.id} errs as one over the root of its features`, () => {
    const errors = [K, 4 * K, 16 * K, 64 * K].map((count) => estimates(map, kernel, count, 400).rms);
    for (let n = 1; n < errors.length; n++) {
      const ratio = errors[n - 1]! / errors[n]!;
      assert.ok(ratio > 1.6 && ratio < 2.5, `four times as many: error ${ratio} times smaller, of ${errors}`);
    }
  });
}

test("orthogonal rows estimate better than independent ones", () => {
  const independent: FeatureMap = {
    ...favorMap,
    draw: (keyWidth, random, count = keyWidth) => ({
      values: random.normal(new Float64Array(count * keyWidth)),
      count,
    }),
  };
  const kernel = kernels[0]![2];
  const [orthogonal, plainly] = [favorMap, independent].map((map) => estimates(map, kernel, K, 2000).rms);
  assert.ok(orthogonal! < plainly!, `${orthogonal} and ${plainly}`);
});

test("performer comes closer to softmax with more features", () => {
  const shape = [1, 24, 2, K] as const;
  const short = (name: string): Tensor =>
    tensor(
      host,
      normalTensor(host, name, shape)
        .dataSync()
        .map((a) => a / 2),
      shape,
    );
  const inputs = { q: short("q"), k: short("k"), v: normalTensor(host, "v", shape) };
  const outputsOf = (form: unknown, more: Record<string, Tensor> = {}): Float64Array =>
    scope(host, () =>
      noGrad(() => Float64Array.from((form as Form)({ ...inputs, ...more })["output"]!.dataSync())),
    );
  const exact = outputsOf(softmax.forms.chunkwise);
  const errors = [64, 1024, 16_384].map((count) => {
    const { values } = favorMap.draw!(K, new Random(8), count);
    const features = tensor(host, values, [count, K]);
    return relativeError(outputsOf(performer.forms.chunkwise, { features }), exact);
  });
  assert.ok(errors[1]! < errors[0]! / 2 && errors[2]! < errors[1]! / 2, `${errors}`);
});

test("performer does not overflow for large keys, and its stabiliser looks at the past alone", () => {
  const layer = initialized(wasm, new PerformerLayer({ width: 12, heads: 2, features: 8 }));
  const x = normalTensor(wasm, "x", [1, 20, 12]);
  const values = x.dataSync();
  const loud = (from: number): Tensor =>
    tensor(
      wasm,
      Float32Array.from(values, (value, i) => (i < from * 12 ? value : 300 * value)),
      x.shape,
    );
  const all = outputOf(layer, loud(0));
  assert.ok(all.every(Number.isFinite));
  const late = outputOf(layer, loud(9));
  assert.deepEqual(late.subarray(0, 9 * 12), outputOf(layer, x).subarray(0, 9 * 12));
  assert.ok(late.every(Number.isFinite));
});

test("performer draws its features anew where it is asked to, from the given source alone", () => {
  const layer = initialized(host, new PerformerLayer({ width: 12, heads: 2, features: 8 }));
  const x = normalTensor(host, "x", [1, 9, 12]);
  const before = outputOf(layer, x);
  layer.redraw(new Random(5));
  const after = outputOf(layer, x);
  assert.notDeepEqual(after, before);
  layer.redraw(new Random(6));
  layer.redraw(new Random(5));
  assert.deepEqual(outputOf(layer, x), after);
});

test("performer draws anew in its share of training steps, the same again from the same source", () => {
  const steps = (redraw: number, training = true): Float64Array[] => {
    const layer = initialized(host, new PerformerLayer({ width: 12, heads: 2, features: 8, redraw }));
    const x = normalTensor(host, "x", [1, 9, 12]);
    return Array.from({ length: 12 }, (_, step) =>
      outputOf(layer, x, { training, random: new Random(1, `step ${step}`) }),
    );
  };
  const changes = (outputs: Float64Array[]): number =>
    outputs.filter((y, n) => n > 0 && y.some((value, i) => value !== outputs[n - 1]![i])).length;
  assert.equal(changes(steps(0)), 0);
  assert.equal(changes(steps(1)), 11);
  assert.equal(changes(steps(1, false)), 0, "evaluation keeps its features");
  const some = changes(steps(0.4));
  assert.ok(some > 0 && some < 11, `${some}`);
  assert.deepEqual(steps(0.4), steps(0.4));
  assert.throws(() => steps(1.5), { code: "E_CONFIG", message: /redraw/ });
});

test("a normaliser of 0 gives 0 and gradients without NaN", () => {
  const inputs = {
    q: tensor(host, [1, 0, 1, 0], [1, 2, 1, 2], { requiresGrad: true }),
    k: tensor(host, [-1, -1, -2, -3], [1, 2, 1, 2], { requiresGrad: true }),
    v: tensor(host, [5, 7], [1, 2, 1, 1], { requiresGrad: true }),
  };
  for (const device of [host, wasm]) {
    for (const name of ["recurrent", "chunkwise", "parallel", "step"] as const) {
      const placed = Object.fromEntries(
        Object.entries(inputs).map(([key, x]) => [key, tensor(device, x.dataSync(), x.shape)]),
      );
      for (const eps of [0, 1e-6]) {
        const { output } = linearForms("relu", { normalize: true })[name](placed, { eps });
        assert.deepEqual([...output!.dataSync()], [0, 0], `${name}, eps ${eps}`);
      }
    }
  }
});

test("a map that is not known is refused with those that are", () => {
  assert.throws(() => featureMap("elu"), { code: "E_CONFIG", message: /elu\+1/ });
  assert.throws(() => favorMap.apply(normalTensor(host, "x", [1, 1, 1, K])), {
    code: "E_CONFIG",
    message: /random part/,
  });
});
