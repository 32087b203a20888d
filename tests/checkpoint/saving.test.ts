/** Saving writes what was read: the same names, shapes, bytes and entries of config.json. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { noGrad } from "../../src/autograd/tape.ts";
import { tensor } from "../../src/autograd/tensor.ts";
import { load } from "../../src/checkpoint/load.ts";
import { readSafetensors } from "../../src/checkpoint/safetensors.ts";
import { toFloat64 } from "../../src/checkpoint/safetensors-values.ts";
import { save } from "../../src/checkpoint/save.ts";
import { modelFolders } from "../../src/checkpoint/verify-models.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { DecoderConfig } from "../../src/models/config.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { formatFor, parseConfig, preset } from "../../src/models/index.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";
import { relativeError } from "../conformance/tolerance.ts";

const device = hostDevice({ dtype: "float32" });
let out = "";
before(async () => {
  out = await mkdtemp(join(tmpdir(), "linnet-saving-"));
});
after(() => rm(out, { recursive: true }));

const folders = await modelFolders(fileURLToPath(new URL("../golden/models", import.meta.url)));
const tensorsOf = async (folder: string) =>
  readSafetensors(await readFile(`${folder}/model.safetensors`)).tensors;
const configOf = async (folder: string) =>
  parseConfig(await readFile(`${folder}/config.json`, "utf8"), folder);

for (const folder of folders) {
  const name = folder.split("/").at(-1)!;
  test(`${name} is written as it was read`, async () => {
    const target = join(out, name);
    const model = await load(folder, { device });
    await model.save(target);
    const derived = new Set(
      (model.format.derived?.(model.json, model.decoder.config) ?? []).map((t) => t.name),
    );
    model.dispose();
    const [read, written] = [await tensorsOf(folder), await tensorsOf(target)];
    assert.deepEqual([...written.keys()].sort(), [...read.keys()].sort());
    for (const [tensor, entry] of read) {
      const own = written.get(tensor)!;
      assert.deepEqual(own.shape, entry.shape, tensor);
      // Constants are computed anew, by another exponential.
      if (derived.has(tensor)) assert.ok(relativeError(toFloat64(own), toFloat64(entry)) < 1e-6, tensor);
      else assert.deepEqual(own.bytes, entry.bytes, tensor);
    }
    assert.deepEqual(await configOf(target), { ...(await configOf(folder)), dtype: "float32" });
  });
}

for (const folder of folders) {
  const name = folder.split("/").at(-1)!;
  test(`the format of ${name} describes its decoder in words that are read as the same decoder`, async () => {
    const model = await load(folder, { device });
    const { format, decoder } = model;
    model.dispose();
    const json = { model_type: format.modelTypes[0], ...format.write(decoder.config) };
    assert.deepEqual(format.read(json), decoder.config);
  });
}

const small: DecoderConfig = { vocabularySize: 50, width: 32, layers: 2, heads: 2, pattern: ["gla"] };

test("a model made here is saved in the format that fits and gives the same logits when loaded", async () => {
  for (const id of ["gla", "retention", "delta", "gated-delta", "kda", "mamba2"]) {
    const feedForward =
      id === "mamba2" ? ({ kind: "none" } as const) : ({ kind: "gated", width: 48 } as const);
    const decoder = new Decoder({
      ...small,
      pattern: [id],
      feedForward,
      positions: { kind: "rotary" },
      tied: true,
    });
    initialize(decoder, device, new Random(3));
    const target = join(out, `own-${id}`);
    await save(target, decoder, { entries: { eos_token_id: 7 } });
    const model = await load(target, { device });
    assert.deepEqual(model.endIds, [7]);
    const values = (d: Decoder) =>
      [...d.namedParameters()].map(([name, p]) => [name, [...p.value.dataSync()]] as const);
    assert.deepEqual(values(model.decoder), values(decoder), id);
    model.dispose();
    decoder.dispose();
  }
});

test("weights are rounded once to BF16 and read back as float32", async () => {
  const decoder = new Decoder({ ...small, feedForward: { kind: "gated", width: 48 } });
  initialize(decoder, device, new Random(3));
  await save(join(out, "bf16"), decoder, { modelType: "gla", dtype: "BF16" });
  const model = await load(join(out, "bf16"), { device });
  const [one, other] = [decoder, model.decoder].map((d) => d.embedding.weight.value.dataSync());
  assert.ok(relativeError(other!, one!) < 2 ** -8);
  assert.notDeepEqual(other, one);
  assert.equal((await tensorsOf(join(out, "bf16"))).get("lm_head.weight")!.dtype, "BF16");
  model.dispose();
  decoder.dispose();
});

test("what no format has words for is refused with the reasons", async () => {
  const decoder = new Decoder({ ...small, positions: { kind: "sinusoidal" } });
  await assert.rejects(save(join(out, "none"), decoder), {
    code: "E_UNSUPPORTED",
    message: /sinusoidal positions/,
  });
  await assert.rejects(save(join(out, "none"), decoder, { modelType: "llama" }), {
    code: "E_FORMAT",
    message: /expected one of delta_net/,
  });
});

const presetFormats = {
  ...{ "delta-net": "delta_net", "gated-delta-net": "gated_deltanet", gla: "gla", mamba2: "mamba2" },
  ...{ "qwen3-next": "qwen3_next", "minimax-text-01": "minimax", "kimi-linear": "kimi_linear" },
};

test("presets of published models have a format that describes them", () => {
  for (const [id, type] of Object.entries(presetFormats)) {
    assert.equal(formatFor(preset(id).published).format.modelTypes[0], type, id);
  }
});

test("tiny presets of published models are saved in their formats and give the same logits when loaded", async () => {
  const ids = tensor(device, [3, 14, 15, 92, 65, 35, 89], [1, 7], { dtype: "int32" });
  for (const [id, type] of Object.entries(presetFormats)) {
    const decoder = new Decoder(preset(id).tiny);
    initialize(decoder, device, new Random(5));
    await save(join(out, `tiny-${id}`), decoder, { modelType: type });
    const model = await load(join(out, `tiny-${id}`), { device });
    const [own, loaded] = [decoder, model.decoder].map((d) => noGrad(() => d.forward(ids).logits.dataSync()));
    assert.ok(own!.some((value) => value !== own![0]));
    assert.deepEqual(loaded, own, id);
    model.dispose();
    decoder.dispose();
  }
});
