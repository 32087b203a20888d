/** Layers inside the tiny models that other libraries saved: their weights in, their logits out. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { relativeRms } from "../../scripts/verify/rows.ts";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { readSafetensors } from "../../src/checkpoint/safetensors.ts";
import { toFloat64, toInt32 } from "../../src/checkpoint/safetensors-values.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Layer } from "../../src/mechanisms/layer.ts";
import { mechanism } from "../../src/mechanisms/registry.ts";
import { silu } from "../../src/ops/activation/index.ts";
import { add, multiply } from "../../src/ops/arithmetic/index.ts";
import { embedding } from "../../src/ops/embedding/index.ts";
import { matmul } from "../../src/ops/matmul/index.ts";
import { rmsNorm } from "../../src/ops/norm/index.ts";
import { closeTargets, targets } from "../conformance/targets.ts";

after(closeTargets);

/** Model folder, mechanism, and the layer's options beyond width and heads. */
const published: readonly (readonly [folder: string, id: string, options: Record<string, unknown>])[] = [
  ["fla-linear-attn", "linear", { featureMap: "hadamard", norm: true, scale: 32 ** -0.5 }],
  ["fla-retnet", "retention", {}],
  ["fla-gla", "gla", {}],
  ["fla-delta-net", "delta", {}],
  ["fla-gated-deltanet", "gated-delta", { keyWidth: 16, valueWidth: 32 }],
  ["fla-kda", "kda", { keyWidth: 16, valueWidth: 16 }],
  ["fla-mamba2", "mamba2", { keyWidth: 16, valueWidth: 16 }],
  ["mamba2", "mamba2", { keyWidth: 16, valueWidth: 16, normGroups: 1 }],
];

/** Theirs by ours, where it is not the same words in another case. */
const names: Readonly<Record<string, string>> = {
  aLog: "A_log",
  d: "D",
  "retention oNorm.weight": "g_norm_swish_gate.weight",
  "gla oNorm.weight": "g_norm_swish_gate.weight",
};

function theirName(id: string, own: string): string {
  const snake = own.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return names[`${id} ${own}`] ?? names[own] ?? snake;
}

const folderOf = (name: string): URL => new URL(`../golden/models/${name}/`, import.meta.url);

/** A published model: its tensors by name, prompt and logits. */
function readModel(name: string) {
  const read = (file: string) => readSafetensors(readFileSync(new URL(file, folderOf(name)))).tensors;
  const weights = read("model.safetensors");
  const golden = read("golden.safetensors");
  // Python writes infinities that JSON does not have.
  const text = readFileSync(new URL("config.json", folderOf(name)), "utf8").replaceAll("Infinity", "null");
  const config = JSON.parse(text);
  const get = (key: string) => {
    const entry = weights.get(key);
    assert.ok(entry !== undefined, `the file has no ${key}`);
    return { values: toFloat64(entry), shape: entry.shape };
  };
  return {
    get,
    has: (key: string) => weights.has(key),
    config,
    ids: { values: toInt32(golden.get("input_ids")!), shape: golden.get("input_ids")!.shape },
    logits: toFloat64(golden.get("logits")!),
  };
}

type Model = ReturnType<typeof readModel>;

function loadLayer(device: Device, model: Model, id: string, prefix: string, layer: Layer): void {
  for (const [own, parameter] of layer.namedParameters()) {
    const { values } = model.get(`${prefix}.${theirName(id, own)}`);
    assert.equal(values.length, parameter.size, own);
    parameter.set(device, values);
  }
}

/** Logits of a published model whose mixers are layers of a mechanism. */
function logitsOf(
  device: Device,
  model: Model,
  id: string,
  options: Record<string, unknown>,
): ArrayLike<number> {
  const { config } = model;
  const weight = (key: string): Tensor => {
    const { values, shape } = model.get(key);
    return tensor(device, values, shape);
  };
  const isMamba = model.has("backbone.embeddings.weight");
  const root = isMamba ? "backbone" : "model";
  const eps = config.norm_eps ?? config.layer_norm_epsilon;
  const linear = (x: Tensor, key: string): Tensor => matmul(x, weight(key), { transposeB: true });
  return scope(device, () =>
    noGrad(() => {
      let x = embedding(
        tensor(device, model.ids.values, model.ids.shape, { dtype: "int32" }),
        weight(`${root}.embeddings.weight`),
      );
      for (let i = 0; i < config.num_hidden_layers; i++) {
        const at = `${root}.layers.${i}`;
        const layer = mechanism(id).layer({
          ...{
            width: config.hidden_size,
            heads: config.num_heads,
            layer: i,
            layers: config.num_hidden_layers,
          },
          ...{ normEps: eps, ...options },
        });
        loadLayer(device, model, id, `${at}.${isMamba ? "mixer" : "attn"}`, layer);
        const normed = rmsNorm(x, weight(`${at}.${isMamba ? "norm" : "attn_norm"}.weight`), { eps });
        x = add(x, layer.forward(normed, { training: false, causal: true }));
        layer.dispose();
        if (isMamba) continue;
        const fed = rmsNorm(x, weight(`${at}.mlp_norm.weight`), { eps });
        const gate = silu(linear(fed, `${at}.mlp.gate_proj.weight`));
        x = add(
          x,
          linear(multiply(gate, linear(fed, `${at}.mlp.up_proj.weight`)), `${at}.mlp.down_proj.weight`),
        );
      }
      return linear(
        rmsNorm(x, weight(`${root}.norm${isMamba ? "_f" : ""}.weight`), { eps }),
        "lm_head.weight",
      ).dataSync();
    }),
  );
}

/** Both sides compute in float32 through a few layers: their own errors are near 1e-6, and this is ten times that. */
const bound = 1e-5;

const devices: (readonly [string, Device])[] = [["host", hostDevice({ dtype: "float64" })]];
for (const target of (await targets()).slice(1)) devices.push([target.name, await target.open(2)]);

for (const [folder, id, options] of published) {
  const model = readModel(folder);
  for (const [name, device] of devices) {
    test(`${id} layers give the logits of ${folder} on ${name}`, () => {
      const error = relativeRms(logitsOf(device, model, id, options), model.logits);
      assert.ok(error <= bound, `relative RMS ${error}, allowed are ${bound}`);
    });
  }
}
