/** A tokenizer.json and its chat template beside a model: text in, text out, and a run trained with it. */
import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { load } from "../../src/checkpoint/load.ts";
import { save } from "../../src/checkpoint/save.ts";
import { tokenizerOf } from "../../src/cli/tokenizer-of.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";
import { loadTokenizer } from "../../src/text/index.ts";

const golden = fileURLToPath(new URL("../golden/tokenizer", import.meta.url));
const device = hostDevice({ dtype: "float32" });
let root = "";
before(async () => {
  root = await mkdtemp(join(tmpdir(), "linnet-tokenizer-"));
  const decoder = new Decoder({ vocabularySize: 300, width: 16, layers: 1, heads: 2, pattern: ["gla"] });
  initialize(decoder, device, new Random(1));
  await save(join(root, "model"), decoder, { modelType: "gla" });
  decoder.dispose();
  await cp(golden, join(root, "model"), { recursive: true });
});
after(() => rm(root, { recursive: true }));

test("a tokenizer.json beside the weights reads and writes text, merges and all", async () => {
  const model = await load(join(root, "model"), { device });
  const { tokenizer } = model;
  assert.equal(model.hasTokenizer, true);
  assert.equal(tokenizer.vocabularySize, 266);
  assert.equal(tokenizer.separator, 265);
  assert.equal(tokenizer.encode("hello world").length, 2);
  for (const text of ["hello world", "Grüße, 世界! 🐦\n", ""])
    assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
  const stream = tokenizer.stream();
  let shown = "";
  for (const id of tokenizer.encode("é 世 hello")) shown += stream.push(id);
  assert.equal(shown + stream.end(), "é 世 hello");
  const { text } = await model.session().generate({ prompt: "hello", maxNewTokens: 5, seed: 1 });
  assert.equal(typeof text, "string");
  model.dispose();
});

test("the chat template says how a conversation is read", async () => {
  const model = await load(join(root, "model"), { device });
  const chat = model.chat!([
    { role: "user", content: "hello" },
    { role: "assistant", content: "world" },
  ]);
  assert.equal(chat, "<user>hello<|end|><assistant>world<|end|><assistant>");
  assert.equal(model.chat!([], { addGenerationPrompt: false }), "");
  model.dispose();
});

test("saving keeps tokenizer and template", async () => {
  const model = await load(join(root, "model"), { device });
  await model.save(join(root, "again"));
  model.dispose();
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    assert.equal(
      await readFile(join(root, "again", name), "utf8"),
      await readFile(join(golden, name), "utf8"),
    );
});

test("training takes it by file or folder, and a run keeps it", async () => {
  const tokenizer = await tokenizerOf(golden, "");
  assert.deepEqual(
    (await tokenizerOf(join(golden, "tokenizer.json"), "")).encode("hello"),
    tokenizer.encode("hello"),
  );
  const kept = await loadTokenizer(JSON.parse(JSON.stringify(tokenizer.toJSON())));
  assert.deepEqual(kept.encode("hello world"), tokenizer.encode("hello world"));
  await assert.rejects(tokenizerOf("nowhere.json", ""), { code: "E_FORMAT" });
  await assert.rejects(tokenizerOf("words", ""), { code: "E_CONFIG", message: /or a tokenizer.json/ });
});

test("a tokenizer.json that is none is refused, and memory is back", async () => {
  await cp(join(root, "model"), join(root, "spoiled"), { recursive: true });
  const held = device.info().bytes.persistent;
  for (const text of ["{", "{}"]) {
    await writeFile(join(root, "spoiled/tokenizer.json"), text);
    await assert.rejects(load(join(root, "spoiled"), { device }), { code: "E_FORMAT" });
  }
  assert.equal(device.info().bytes.persistent, held);
});
