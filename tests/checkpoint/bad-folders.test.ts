/** Folders that are missing something, were altered or are hostile: an error that says what, and memory as before. */
import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { load } from "../../src/checkpoint/load.ts";
import { readSafetensors, writeSafetensors } from "../../src/checkpoint/safetensors.ts";
import { fromValues } from "../../src/checkpoint/safetensors-values.ts";
import { save } from "../../src/checkpoint/save.ts";
import type { Device } from "../../src/device/device.ts";
import { openWasm } from "../../src/device/index.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";

const golden = (name: string): string => fileURLToPath(new URL(`../golden/models/${name}`, import.meta.url));
let root = "";
let device: Device;
before(async () => {
  root = await mkdtemp(join(tmpdir(), "linnet-bad-"));
  device = await openWasm({ threads: 1 });
});
after(async () => {
  device.close();
  await rm(root, { recursive: true });
});

let made = 0;
/** A copy of a tiny model to spoil. */
async function copy(name = "fla-gla"): Promise<string> {
  const folder = join(root, String(made++));
  await cp(golden(name), folder, { recursive: true });
  return folder;
}

async function editConfig(folder: string, entries: Readonly<Record<string, unknown>>): Promise<void> {
  const path = join(folder, "config.json");
  const config = JSON.parse(await readFile(path, "utf8")) as object;
  await writeFile(path, JSON.stringify({ ...config, ...entries }));
}

type Tensors = Map<string, ReturnType<typeof fromValues>>;

async function editTensors(folder: string, edit: (tensors: Tensors) => void): Promise<void> {
  const path = join(folder, "model.safetensors");
  const tensors = new Map(readSafetensors(await readFile(path)).tensors) as Tensors;
  edit(tensors);
  await writeFile(path, writeSafetensors(tensors));
}

async function refuses(folder: string, code: string, message: RegExp): Promise<void> {
  const held = device.info().bytes.persistent;
  await assert.rejects(load(folder, { device }), (error: Error & { code?: string }) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
  assert.equal(device.info().bytes.persistent, held, "memory is back");
}

const q = "model.layers.1.attn.q_proj.weight";

test("a folder that is not there or has no config", async () => {
  await refuses(join(root, "nowhere"), "E_FORMAT", /is no folder: expected one with config.json/);
  const folder = await copy();
  await rm(join(folder, "config.json"));
  await refuses(folder, "E_FORMAT", /no published model: expected config.json/);
  await writeFile(join(folder, "config.json"), "{ no json");
  await refuses(folder, "E_FORMAT", /is not JSON/);
});

test("a model_type that is not known, none, or one that is planned", async () => {
  const folder = await copy();
  await editConfig(folder, { model_type: "llama" });
  await refuses(folder, "E_FORMAT", /"llama" is not known: expected one of delta_net, .*hgrn2.*retnet/);
  await editConfig(folder, { model_type: 7 });
  await refuses(folder, "E_FORMAT", /does not say what it describes/);
  await editConfig(folder, { model_type: "rwkv7" });
  await refuses(folder, "E_UNSUPPORTED", /RWKV-7 is planned/);
});

test("variants that layers are not built for are refused by their key", async () => {
  const folder = await copy();
  for (const entries of [{ use_short_conv: true }, { num_kv_heads: 1 }, { attn: { layers: [1] } }]) {
    await editConfig(folder, { use_short_conv: false, num_kv_heads: null, attn: null, ...entries });
    await refuses(folder, "E_UNSUPPORTED", new RegExp(`${Object.keys(entries)[0]} is not supported`));
  }
});

test("no weights, and a shard that is missing", async () => {
  const folder = await copy();
  await rm(join(folder, "model.safetensors"));
  await refuses(folder, "E_FORMAT", /has no weights: expected model.safetensors/);
  const index = { weight_map: { [q]: "model-00001-of-00002.safetensors" } };
  await writeFile(join(folder, "model.safetensors.index.json"), JSON.stringify(index));
  await refuses(folder, "E_FORMAT", /lacks a shard: expected model-00001-of-00002.safetensors/);
});

test("an index that points outside the folder, or is none", async () => {
  const folder = await copy();
  const path = join(folder, "model.safetensors.index.json");
  for (const shard of ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\\\x.safetensors"]) {
    await writeFile(path, JSON.stringify({ weight_map: { [q]: shard } }));
    await refuses(folder, "E_FORMAT", /points outside the folder/);
  }
  await writeFile(path, JSON.stringify({ weight_map: 3 }));
  await refuses(folder, "E_FORMAT", /is no index/);
  await writeFile(path, JSON.stringify({ weight_map: { nothing: "model.safetensors" } }));
  await refuses(folder, "E_FORMAT", /not as its index says: expected "nothing"/);
});

test("a file cut short at any place, and one with other bytes in its header", async () => {
  const folder = await copy();
  const path = join(folder, "model.safetensors");
  const whole = await readFile(path);
  for (const length of [0, 7, 100, 4000, whole.length >> 1, whole.length - 1]) {
    await writeFile(path, whole);
    await truncate(path, length);
    await refuses(folder, "E_FORMAT", /safetensors/);
  }
  const altered = Uint8Array.from(whole);
  altered[30] = 0;
  await writeFile(path, altered);
  await refuses(folder, "E_FORMAT", /header/);
});

test("tensors that are missing, left over, of another shape or dtype are named", async () => {
  const folder = await copy();
  await editTensors(folder, (tensors) => {
    tensors.set("model.extra", tensors.get(q)!);
    tensors.delete(q);
  });
  await refuses(folder, "E_FORMAT", new RegExp(`1 missing: "${q}"; 1 left over: "model.extra"`));
  const other = await copy();
  await editTensors(other, (tensors) => tensors.set(q, fromValues(new Float32Array(64), [1, 64])));
  await refuses(other, "E_FORMAT", /q_proj.weight" is \[1, 64\], expected \[32, 64\]/);
  await editTensors(other, (tensors) => tensors.set(q, fromValues(new Int32Array(2048), [32, 64])));
  await refuses(other, "E_FORMAT", /is I32, expected F32, F16, BF16 or F64/);
});

test("heads and layers that do not fit", async () => {
  const folder = await copy();
  for (const heads of [3, 65_536]) {
    await editConfig(folder, { num_heads: heads });
    await refuses(folder, "E_FORMAT", /config.json makes no model|not those of its config.json/);
  }
  await editConfig(folder, { num_heads: 2, num_hidden_layers: 1e9 });
  await refuses(folder, "E_FORMAT", /1000000000 layers, the files have 31 tensors/);
  await editConfig(folder, { num_hidden_layers: -1 });
  await refuses(folder, "E_FORMAT", /num_hidden_layers makes no model: expected a whole number >= 1/);
  const next = await copy("qwen3-next");
  await editConfig(next, { linear_num_key_heads: 2 ** 30, linear_num_value_heads: 2 ** 30 });
  await refuses(next, "E_FORMAT", /not those of its config.json/);
});

test("weights that are NaN are refused, and loaded where asked for", async () => {
  const folder = await copy();
  await editTensors(folder, (tensors) => {
    const values = new Float32Array(2048).fill(1);
    values[2047] = Number.NaN;
    values[0] = Number.POSITIVE_INFINITY;
    tensors.set(q, fromValues(values, [32, 64]));
  });
  await refuses(
    folder,
    "E_NUMERICS",
    /weights are no numbers: expected finite values in "model.layers.1.attn.q_proj/,
  );
  const model = await load(folder, { device, allowNaN: true });
  const own = [...model.decoder.namedParameters()].find(([name]) => name === "blocks.1.mixer.qProj.weight")!;
  assert.ok(Number.isNaN(own[1].value.dataSync()[2047]));
  model.dispose();
});

test("a device without room is told, and has its memory back", async () => {
  const tight = await openWasm({ threads: 1, maximumBytes: 2 ** 20 });
  const held = tight.info().bytes.persistent;
  await assert.rejects(load(golden("qwen3-next"), { device: tight }), { code: "E_OUT_OF_MEMORY" });
  assert.equal(tight.info().bytes.persistent, held);
  tight.close();
});

test("an aborted signal stops loading, and memory is back", async () => {
  const controller = new AbortController();
  const held = device.info().bytes.persistent;
  const onProgress = (): void => controller.abort();
  const loading = load(golden("minimax-text-01"), { device, signal: controller.signal, onProgress });
  await assert.rejects(loading, { name: "AbortError" });
  assert.equal(device.info().bytes.persistent, held);
});

test("weights that are read straight into the device's memory are looked at too; infinities are numbers", async () => {
  const folder = join(root, "wide");
  const decoder = new Decoder({ vocabularySize: 3000, width: 32, layers: 1, heads: 2, pattern: ["gla"] });
  initialize(decoder, device, new Random(1));
  await save(folder, decoder, { modelType: "gla" });
  decoder.dispose();
  const name = "model.embeddings.weight";
  const values = new Float32Array(96_000);
  values.set([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], 70_000);
  await editTensors(folder, (tensors) => tensors.set(name, fromValues(values, [3000, 32])));
  const model = await load(folder, { device });
  assert.deepEqual(model.decoder.embedding.weight.value.dataSync(), values);
  model.dispose();
  values[95_999] = Number.NaN;
  await editTensors(folder, (tensors) => tensors.set(name, fromValues(values, [3000, 32])));
  await refuses(folder, "E_NUMERICS", /expected finite values in "model.embeddings.weight", got NaN/);
});
