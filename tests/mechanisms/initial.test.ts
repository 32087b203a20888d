/** Parameters of layers: what they are called, where they begin, and what bounds on gates do. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Layer } from "../../src/mechanisms/layer.ts";
import { lightningDecays } from "../../src/mechanisms/lightning/rule.ts";
import { mechanism } from "../../src/mechanisms/registry.ts";
import { retentionDecays } from "../../src/mechanisms/retention/rule.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";
import { normalTensor, outputOf, relativeError } from "./layer-case.ts";

const host = hostDevice({ dtype: "float64" });
after(() => host.close());

function made(id: string, options: Record<string, unknown> = {}): Layer {
  const layer = mechanism(id).layer({ width: 64, heads: 16, ...options });
  initialize(layer, host, new Random(3));
  return layer;
}

const shapesOf = (layer: Layer): Record<string, readonly number[]> =>
  Object.fromEntries([...layer.namedParameters()].map(([name, { shape }]) => [name, shape]));

function valuesOf(layer: Layer, name: string): number[] {
  const found = [...layer.namedParameters()].find(([own]) => own === name);
  assert.ok(found !== undefined, `no parameter ${name}`);
  return [...found[1].value.dataSync()];
}

const isLeftAlone = (layer: Layer, name: string): boolean =>
  [...layer.namedParameters()].some(([own, { decays }]) => own === name && !decays);

const softplus = (x: number): number => Math.log1p(Math.exp(x));
const between = (values: readonly number[], low: number, high: number, what: string): void => {
  assert.ok(
    values.every((x) => x >= low && x <= high),
    `${what}: ${Math.min(...values)} to ${Math.max(...values)}`,
  );
  assert.ok(new Set(values).size > 1, `${what} are drawn`);
};

test("gated-delta and mamba2 begin with the rates and time steps of their papers", () => {
  for (const [id, low] of [
    ["gated-delta", 1e-4],
    ["mamba2", 1],
  ] as const) {
    const layer = made(id, { keyWidth: 8 });
    between(valuesOf(layer, "aLog").map(Math.exp), low * (1 - 1e-12), 16, `${id} exp(A_log)`);
    between(valuesOf(layer, "dtBias").map(softplus), 1e-3 * (1 - 1e-9), 0.1 * (1 + 1e-9), `${id} time steps`);
    for (const name of ["aLog", "dtBias"]) assert.ok(isLeftAlone(layer, name), `${name} does not decay`);
  }
  assert.deepEqual(new Set(valuesOf(made("mamba2"), "d")), new Set([1]));
});

test("kda begins with a rate per head and time steps per channel, at 0 where its gate is bounded", () => {
  const layer = made("kda");
  between(valuesOf(layer, "aLog").map(Math.exp), 1, 16, "exp(A_log)");
  between(valuesOf(layer, "dtBias").map(softplus), 1e-3 * (1 - 1e-9), 0.1 * (1 + 1e-9), "time steps");
  assert.deepEqual(new Set(valuesOf(made("kda", { gateBound: -5 }), "aLog")), new Set([0]));
});

test("parameters have the names and shapes of published layers", () => {
  assert.deepEqual(shapesOf(made("mamba2", { heads: 4, groups: 2, keyWidth: 8, valueWidth: 32 })), {
    "inProj.weight": [2 * 128 + 2 * 2 * 8 + 4, 64],
    "conv1d.weight": [128 + 2 * 2 * 8, 4],
    "conv1d.bias": [160],
    ...{ dtBias: [4], aLog: [4], d: [4] },
    ...{ "norm.weight": [128], "outProj.weight": [64, 128] },
  });
  assert.deepEqual(shapesOf(made("gla", { heads: 2 })), {
    ...{
      "qProj.weight": [32, 64],
      "kProj.weight": [32, 64],
      "vProj.weight": [64, 64],
      "gProj.weight": [64, 64],
    },
    ...{ "gkProj.0.weight": [16, 64], "gkProj.1.weight": [32, 16], "gkProj.1.bias": [32] },
    ...{ "oNorm.weight": [32], "oProj.weight": [64, 64] },
  });
  assert.deepEqual(shapesOf(made("delta", { heads: 2, convWidth: 0, writeStrength: false })), {
    ...{ "qProj.weight": [64, 64], "kProj.weight": [64, 64], "vProj.weight": [64, 64] },
    ...{ "oNorm.weight": [32], "oProj.weight": [64, 64] },
  });
  const kda = shapesOf(made("kda", { heads: 2, valueHeads: 4, keyWidth: 8, valueWidth: 6 }));
  assert.deepEqual(kda["fProj.0.weight"], [6, 64]);
  assert.deepEqual(kda["fProj.1.weight"], [4 * 8, 6]);
  assert.deepEqual(kda["gProj.1.bias"], [4 * 6]);
  assert.deepEqual(kda["dtBias"], [32]);
});

test("projections begin uniform within one over the root of their inputs, norms at 1", () => {
  for (const id of ["linear", "retention", "gla", "delta", "gated-delta", "kda", "softmax"]) {
    const layer = made(id);
    const weights = valuesOf(layer, "qProj.weight");
    between(weights, -1 / 8, 1 / 8, `${id} q`);
    const deviation = Math.sqrt(weights.reduce((sum, x) => sum + x * x, 0) / weights.length);
    assert.ok(Math.abs(deviation - 1 / 8 / Math.sqrt(3)) < 0.003, `${id}: ${deviation}`);
    for (const [name, parameter] of layer.namedParameters()) {
      if (/norm\.weight$/i.test(name))
        assert.deepEqual(new Set(parameter.value.dataSync()), new Set([1]), name);
    }
  }
});

test("decays are those of RetNet and of MiniMax, the latter weaker the deeper", () => {
  const retnet = retentionDecays(3).map(Math.exp);
  for (const [h, gamma] of [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128].entries())
    assert.ok(Math.abs(retnet[h]! - gamma) < 1e-15);
  // 8 heads: slopes 1/2, 1/4 … 1/256, times 1 − l/(L − 1 + 1e-5) + 1e-5.
  const [first, middle, last] = [0, 40, 79].map((layer) => lightningDecays(8, layer, 80));
  assert.ok(Math.abs(first![0]! + 0.5 * (1 + 1e-5)) < 1e-15);
  assert.ok(Math.abs(first![7]! + (1 + 1e-5) / 256) < 1e-15);
  assert.ok(Math.abs(middle![0]! + 0.5 * (1 - 40 / (79 + 1e-5) + 1e-5)) < 1e-15);
  assert.ok(last![0]! < 0 && last![0]! > -1e-5, `${last![0]}`);
});

test("norm groups of mamba2 change what it computes, and its time steps stay in their bounds", () => {
  const x = normalTensor(host, "x", [1, 6, 64]);
  const options = { heads: 4, groups: 2, keyWidth: 8, valueWidth: 32 };
  const grouped = outputOf(made("mamba2", options), x);
  assert.ok(relativeError(outputOf(made("mamba2", { ...options, normGroups: 1 }), x), grouped) > 1e-3);
  assert.deepEqual(outputOf(made("mamba2", { ...options, normGroups: 2 }), x), grouped);
  // Where both bounds are one number the raw time step does not matter.
  const fixed = { ...options, timeStepLimit: [0.3, 0.3] };
  const layer = made("mamba2", fixed);
  const before = outputOf(layer, x);
  const bias = [...layer.namedParameters()].find(([name]) => name === "dtBias")![1];
  bias.set(host, [1, -2, 3, -4]);
  assert.ok(relativeError(outputOf(layer, x), before) < 1e-13);
});

test("a floor under the gate of gla and a bound of kda's hold the state back from being forgotten", () => {
  const x = normalTensor(host, "x", [1, 9, 64]);
  const forgetful = (id: string, name: string, own: Record<string, unknown>): Layer => {
    const layer = made(id, own);
    const bias = [...layer.namedParameters()].find(([other]) => other === name)![1];
    bias.set(host, new Float64Array(bias.size).fill(id === "gla" ? -2000 : 2000));
    return layer;
  };
  const differs = (
    id: string,
    name: string,
    one: Record<string, unknown>,
    other: Record<string, unknown>,
  ): number => relativeError(outputOf(forgetful(id, name, one), x), outputOf(forgetful(id, name, other), x));
  // −2000/16 and 2000 times a rate are decays of everything: only what a bound keeps can differ.
  assert.ok(differs("gla", "gkProj.1.bias", {}, { gateFloor: -1 }) > 1e-2);
  assert.ok(differs("kda", "dtBias", { gateBound: -5 }, { gateBound: -0.5 }) > 1e-2);
});

test("bounds that are none are refused", () => {
  for (const [id, own, name] of [
    ["kda", { gateBound: -6 }, /gateBound/],
    ["kda", { gateBound: 0 }, /gateBound/],
    ["gla", { gateFloor: 0.1 }, /gateFloor/],
    ["delta", { convWidth: -1 }, /convWidth/],
    ["delta", { queryKeyNorm: "l3" }, /queryKeyNorm: expected l2, sum/],
    ["delta", { queryKeyActivation: "tanh" }, /queryKeyActivation/],
    ["gla", { gateRanks: 3 }, /gateRanks is not known/],
    ["delta", { heads: 4, valueHeads: 6 }, /multiple of heads 4, got 6/],
  ] as const)
    assert.throws(() => made(id, own), { code: "E_CONFIG", message: name });
});
