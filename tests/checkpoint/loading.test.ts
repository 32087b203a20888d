/** The ways in which the files of one model may lie: shards, lists, other spellings, other dtypes, parts of larger models. */
import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { load } from "../../src/checkpoint/load.ts";
import type { PublishedModel } from "../../src/checkpoint/published-model.ts";
import { readSafetensors, type TensorEntry, writeSafetensors } from "../../src/checkpoint/safetensors.ts";
import { fromValues, toFloat32 } from "../../src/checkpoint/safetensors-values.ts";
import { verifyModel } from "../../src/checkpoint/verify-models.ts";
import { openWasm } from "../../src/device/index.ts";
import { languageModelling } from "../../src/tasks/language-modelling/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { randomWindows } from "../../src/text/batches.ts";
import { train } from "../../src/train/loop.ts";
import { adamW } from "../../src/train/optimizers/adam.ts";
import { Optimizer } from "../../src/train/optimizers/optimizer.ts";
import { relativeError } from "../conformance/tolerance.ts";

const golden = (name: string): string => fileURLToPath(new URL(`../golden/models/${name}`, import.meta.url));
const device = await openWasm({ threads: 1 });
let root = "";
before(async () => {
  root = await mkdtemp(join(tmpdir(), "linnet-loading-"));
});
after(async () => {
  device.close();
  await rm(root, { recursive: true });
});

let made = 0;
async function copy(name: string): Promise<string> {
  const folder = join(root, String(made++));
  await cp(golden(name), folder, { recursive: true });
  return folder;
}

type Tensors = Map<string, TensorEntry>;

async function edit(folder: string, change: (tensors: Tensors) => Tensors): Promise<void> {
  const path = join(folder, "model.safetensors");
  const tensors = new Map(readSafetensors(await readFile(path)).tensors);
  await writeFile(path, writeSafetensors(change(tensors)));
}

const renamed = (tensors: Tensors, from: RegExp, to: string): Tensors =>
  new Map([...tensors].map(([name, entry]) => [name.replace(from, to), entry]));

async function holds(folder: string): Promise<void> {
  const rows = await verifyModel(folder, device);
  assert.ok(!("why" in rows));
  assert.deepEqual(
    rows.filter(({ ok }) => !ok),
    [],
  );
}

const valuesOf = ({ decoder }: PublishedModel): readonly (readonly [string, readonly number[]])[] =>
  [...decoder.namedParameters()].map(([name, { value }]) => [name, [...value.dataSync()]]);

test("shards by an index are one model", async () => {
  const folder = await copy("kimi-linear");
  const path = join(folder, "model.safetensors");
  const all = [...readSafetensors(await readFile(path)).tensors];
  const map: Record<string, string> = {};
  for (const half of [0, 1]) {
    const shard = `model-0000${half + 1}-of-00002.safetensors`;
    const own = all.filter((_, i) => i % 2 === half);
    for (const [name] of own) map[name] = shard;
    await writeFile(join(folder, shard), writeSafetensors(own));
  }
  await rm(path);
  await writeFile(`${path}.index.json`, JSON.stringify({ metadata: {}, weight_map: map }));
  await holds(folder);
});

test("the embedding of Mamba-2 is read in the singular as well, and written as it was read", async () => {
  const folder = await copy("mamba2");
  await edit(folder, (tensors) => renamed(tensors, /embeddings/, "embedding"));
  await holds(folder);
  const model = await load(folder, { device });
  await model.save(join(root, "singular"));
  model.dispose();
  const written = readSafetensors(await readFile(join(root, "singular/model.safetensors"))).tensors;
  assert.ok(written.has("backbone.embedding.weight"));
});

test("norms of Mamba-2 are over the whole width or over groups, as the library of the file has them", async () => {
  const folder = await copy("mamba2");
  const groups = async (name: string): Promise<unknown> => {
    const model = await load(name, { device });
    model.dispose();
    return model.decoder.config.mixer?.["normGroups"];
  };
  assert.equal(await groups(folder), 1);
  assert.equal(await groups(golden("fla-mamba2")), undefined);
});

test("the text part of a model that sees pictures is read, the rest passed over", async () => {
  const folder = await copy("qwen3.5-text");
  const path = join(folder, "config.json");
  const text = JSON.parse(await readFile(path, "utf8")) as object;
  await writeFile(path, JSON.stringify({ model_type: "qwen3_5", text_config: text }));
  await edit(folder, (tensors) => {
    const inner = renamed(tensors, /^model\./, "model.language_model.");
    inner.set("model.visual.blocks.0.weight", fromValues(new Float32Array(4), [4]));
    inner.set("mtp.norm.weight", fromValues(new Float32Array(4), [4]));
    return inner;
  });
  await holds(folder);
  const model = await load(folder, { device });
  await model.save(join(root, "text"));
  model.dispose();
  await cp(join(folder, "golden.safetensors"), join(root, "text/golden.safetensors"));
  await holds(join(root, "text"));
});

test("F16 and BF16 become float32 on the way", async () => {
  for (const dtype of ["F16", "BF16"] as const) {
    const folder = await copy("qwen3-next");
    await edit(
      folder,
      (tensors) => new Map([...tensors].map(([name, e]) => [name, fromValues(toFloat32(e), e.shape, dtype)])),
    );
    const [half, full] = [await load(folder, { device }), await load(golden("qwen3-next"), { device })];
    const rounded = new Map(valuesOf(half));
    for (const [name, values] of valuesOf(full))
      assert.ok(relativeError(rounded.get(name)!, values) <= (dtype === "F16" ? 2 ** -10 : 2 ** -8), name);
    half.dispose();
    full.dispose();
  }
});

test("an output layer that shares the table of the input is not asked for", async () => {
  const folder = await copy("fla-gla");
  const path = join(folder, "config.json");
  const config = JSON.parse(await readFile(path, "utf8")) as object;
  await writeFile(path, JSON.stringify({ ...config, tie_word_embeddings: true }));
  (await load(folder, { device })).dispose();
  await edit(folder, (tensors) => {
    tensors.delete("lm_head.weight");
    return tensors;
  });
  (await load(folder, { device })).dispose();
});

test("files are given as a list of paths or of bytes", async () => {
  const names = ["config.json", "model.safetensors"];
  const paths = names.map((name) => `${golden("fla-kda")}/${name}`);
  const one = await load(paths, { device });
  const bytes = await Promise.all(
    names.map(async (name, i) => ({ name, bytes: new Uint8Array(await readFile(paths[i]!)) })),
  );
  const other = await load(bytes, { device });
  const blobs = await Promise.all(
    bytes.map(async ({ name, bytes: part }) => new File([part as Uint8Array<ArrayBuffer>], name)),
  );
  const third = await load(blobs, { device });
  assert.deepEqual(valuesOf(other), valuesOf(one));
  assert.deepEqual(valuesOf(third), valuesOf(one));
  for (const model of [one, other, third]) model.dispose();
});

test("progress ends at all the bytes", async () => {
  const seen: (readonly [number, number])[] = [];
  const model = await load(golden("qwen3-next"), {
    device,
    onProgress: (done, total) => seen.push([done, total]),
  });
  const total = 4 * model.decoder.parameterCount;
  assert.deepEqual(seen.at(-1), [total, total]);
  model.dispose();
});

test("a loaded model trains, saves and is loaded again", async () => {
  const model = await load(golden("fla-gated-deltanet"), { device });
  const { decoder } = model;
  const before = valuesOf(model);
  const ids = Int32Array.from({ length: 400 }, (_, i) => (7 * i) % 160);
  const optimizer = new Optimizer(adamW(), decoder.namedParameters(), { learningRate: 1e-2 });
  const losses: number[] = [];
  const task = languageModelling(decoder, device);
  const batches = randomWindows(ids, { batch: 2, time: 24 }, new Random(1, "batches"));
  for await (const { loss } of train(task, { device, optimizer, batches, steps: 5 })) losses.push(loss);
  assert.ok(losses.at(-1)! < losses[0]!, `losses ${losses.join(", ")}`);
  assert.notDeepEqual(valuesOf(model), before);
  await model.save(join(root, "trained"));
  const again = await load(join(root, "trained"), { device });
  assert.deepEqual(valuesOf(again), valuesOf(model));
  optimizer.dispose();
  model.dispose();
  again.dispose();
});
