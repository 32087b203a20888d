/** Published folders on the command line: what they are, what they say, what they become, and whether they are right. */
import assert from "node:assert/strict";
import { cp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/rooms.ts";
import { inFolder, linnet } from "./process.ts";

const timeout = 180_000;
const golden = (name: string): string => join(root, "tests/golden/models", name);

test("info says what a published model is, takes and runs on, and reads no weights", { timeout }, () =>
  inFolder(async (folder) => {
    const json = await linnet(folder, ["info", golden("qwen3-next"), "--context", "1000", "--json"]);
    assert.equal(json.code, 0, json.stderr);
    const facts = JSON.parse(json.stdout);
    assert.equal(facts.architecture, "qwen3_next");
    assert.deepEqual(facts.mixers, [
      ["gated-delta", 3],
      ["softmax", 1],
    ]);
    assert.equal(facts.weightBytes, facts.fileBytes.F32);
    assert.equal(facts.cacheBytes, 1000 * facts.cacheBytesPerToken);
    const [delta] = facts.kernels;
    assert.ok(delta.prefill.includes("recurrence.deltaChunkwise.forward"));
    assert.ok(delta.step.includes("recurrence.deltaStep.forward"));
    const people = await linnet(folder, ["info", golden("mamba2")]);
    assert.match(people.stdout, /mamba2 \(transformers\)[\s\S]*cache +none/);
  }),
);

test("verify passes for models as they are, fails for an altered one", { timeout }, () =>
  inFolder(async (folder) => {
    await cp(golden("fla-gla"), join(folder, "right"), { recursive: true });
    const right = await linnet(folder, ["verify", "--models", ".", "--json"]);
    assert.equal(right.code, 0, right.stderr);
    const { rows, failed } = JSON.parse(right.stdout);
    assert.equal(failed, 0);
    assert.deepEqual(Object.keys(rows[0]), ["model", "check", "relativeRms", "ok"]);
    await cp(golden("fla-gla"), join(folder, "wrong"), { recursive: true });
    // The weights of layers in another order: all there, of the right shapes, and another model.
    await cp(join(golden("fla-hgrn2"), "golden.safetensors"), join(folder, "wrong/golden.safetensors"), {
      force: true,
    });
    const wrong = await linnet(folder, ["verify", "--models", "wrong"]);
    assert.equal(wrong.code, 1);
    assert.match(wrong.stdout, /✖ wrong .*whole, pieces of 1/);
  }),
);

test("convert writes another dtype, generate continues it, and nothing is overwritten", { timeout }, () =>
  inFolder(async (folder) => {
    const made = await linnet(folder, ["convert", golden("fla-kda"), "out", "--dtype", "BF16"]);
    assert.equal(made.code, 0, made.stderr);
    assert.deepEqual((await readdir(join(folder, "out"))).sort(), ["config.json", "model.safetensors"]);
    const text = ["--prompt", "7 8 9", "--max-new-tokens", "4", "--temperature", "0"];
    const { code, stdout } = await linnet(folder, ["generate", "out", ...text]);
    assert.equal(code, 0);
    assert.match(stdout, /^7 8 9( \d+){4}\n$/);
    const again = await linnet(folder, ["convert", golden("fla-kda"), "out"]);
    assert.equal(again.code, 2);
    assert.match(again.stderr, /out is there already/);
  }),
);

test("a run becomes a published model that speaks its text", { timeout }, () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "book.txt"), "the whale and the sea. ".repeat(200));
    const small = [
      "--width",
      "16",
      "--layers",
      "1",
      "--heads",
      "2",
      "--tokenizer",
      "bytes",
      "--threads",
      "1",
    ];
    const trained = await linnet(folder, ["train", "book.txt", "--pattern", "gla", "--steps", "3", ...small]);
    assert.equal(trained.code, 0, trained.stderr);
    const made = await linnet(folder, ["convert", "runs/book", "gla", "--format", "gla"]);
    assert.equal(made.code, 0, made.stderr);
    const options = ["--prompt", "the whale", "--max-new-tokens", "8", "--temperature", "0", "--json"];
    const [run, published] = [
      await linnet(folder, ["generate", "runs/book", ...options]),
      await linnet(folder, ["generate", "gla", ...options]),
    ];
    assert.deepEqual(JSON.parse(published.stdout).ids, JSON.parse(run.stdout).ids);
  }),
);

test("a folder that was spoiled ends with 1 and says what is wrong", { timeout }, () =>
  inFolder(async (folder) => {
    await cp(golden("fla-gla"), join(folder, "model"), { recursive: true });
    await rm(join(folder, "model/model.safetensors"));
    for (const line of [
      ["generate", "model", "--prompt", "1"],
      ["info", "model"],
      ["convert", "model", "out"],
    ]) {
      const { code, stderr } = await linnet(folder, line);
      assert.equal(code, 1, line.join(" "));
      assert.match(stderr, /model has no weights: expected model\.safetensors/);
      assert.doesNotMatch(stderr, /\n\s+at /);
    }
  }),
);
