/** What the command line says to arguments that make no sense, to help, and to machines. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Command } from "commander";
import { commands } from "../../src/cli/commands/all.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import { presets } from "../../src/models/presets/index.ts";
import { modelSize } from "../../src/models/size.ts";
import { inFolder, linnet } from "./process.ts";

const timeout = 180_000;
const small = ["--width", "16", "--layers", "1", "--heads", "2", "--tokenizer", "bytes", "--threads", "1"];

test("arguments that make no sense end with 2 and name what is near", { timeout }, () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "book.txt"), "the whale and the sea. ".repeat(200));
    const cases: readonly (readonly [args: string, message: RegExp])[] = [
      ["trian", /unknown command 'trian'\n\(Did you mean train\?\)/],
      ["models --contxt 5", /unknown option '--contxt'\n\(Did you mean --context\?\)/],
      ["models --context 0", /a whole number >= 1 is expected/],
      ["train", /there is nothing to train on: expected a text file or folder, or --resume RUN/],
      ["train nowhere.txt", /there is no file or folder nowhere\.txt/],
      ["train book.txt --pattern gated-dleta", /unknown id "gated-dleta": expected one of gated-delta,/],
      ["train book.txt --seed one", /a whole number >= 0 is expected/],
      ["train book.txt --tokenizer bpd:300", /unknown tokenizer "bpd:300"/],
      ["experiment mqarr", /unknown experiment "mqarr": expected one of mqar,/],
      ["experiment copy --preset quik", /unknown preset "quik": expected one of quick,/],
      ["experiment copy --only softmix", /unknown contender "softmix": expected one of softmax,/],
      ["experiment classification", /expected a folder whose sub-folders are labels, got none/],
      ["bench gated-delta-nt", /unknown preset "gated-delta-nt": expected one of gated-delta-net,/],
      ["generate nowhere", /nowhere is no folder: expected one with config.json/],
      ["info nowhere", /nowhere is no folder/],
    ];
    for (const [line, message] of cases) {
      const { code, stdout, stderr } = await linnet(folder, line.split(" "));
      assert.match(stderr, message, line);
      assert.equal(code, / nowhere$/.test(line) ? 1 : 2, line);
      assert.equal(stdout, "", line);
      assert.doesNotMatch(stderr, /\n\s+at /, `${line}: no stack`);
    }
  }),
);

test("texts that cannot be learned from end with 1, say why and leave no run", { timeout }, () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "empty.txt"), "");
    await writeFile(join(folder, "binary.bin"), Uint8Array.of(1, 0, 2));
    await writeFile(join(folder, "short.txt"), "the whale\n".repeat(12));
    await mkdir(join(folder, "labels", "one"), { recursive: true });
    const cases: readonly (readonly [args: string[], message: RegExp])[] = [
      [["train", "empty.txt", ...small], /empty\.txt is empty/],
      [["train", "binary.bin", ...small], /binary\.bin is binary: expected text in UTF-8/],
      [["experiment", "classification", "labels"], /expected two or more, got 1/],
      [
        ["train", "short.txt", "--time", "500", ...small],
        /shorter than the context: expected more than 500 tokens/,
      ],
    ];
    for (const [args, message] of cases) {
      const { code, stderr } = await linnet(folder, args);
      assert.match(stderr, message);
      assert.ok(code === 1 || code === 2, `${args.join(" ")} ended with ${code}`);
      assert.ok(!existsSync(join(folder, "runs")), "no run is left behind");
      assert.doesNotMatch(stderr, /\n\s+at /, "no stack");
    }
  }),
);

test("every command has help with an example that fits 80 columns", () => {
  const program = new Command("linnet");
  let written = "";
  for (const register of commands) register(program);
  for (const command of program.commands) {
    written = "";
    command.configureOutput({ writeOut: (text) => (written += text), getOutHelpWidth: () => 80 });
    command.outputHelp();
    assert.match(written, /\nExamples?:\n {2}linnet /, command.name());
    for (const line of written.split("\n")) assert.ok(line.length <= 80, `${command.name()}: ${line}`);
    assert.ok(
      command.options.some(({ long }) => long === "--json") || command.name() === "convert",
      command.name(),
    );
  }
});

test("lists fit 80 columns, and their JSON holds what the library says", { timeout }, () =>
  inFolder(async (folder) => {
    for (const args of [["models"], ["mechanisms"], ["models", "--tiny"]]) {
      const { code, stdout } = await linnet(folder, args);
      assert.equal(code, 0);
      for (const line of stdout.split("\n")) assert.ok(line.length <= 80, line);
    }
    const models = JSON.parse((await linnet(folder, ["models", "--context", "1000", "--json"])).stdout);
    assert.deepEqual(
      models.rows.map((row: { id: string }) => row.id),
      presets.map(({ id }) => id),
    );
    for (const [i, { published }] of presets.entries()) {
      const size = modelSize(published);
      const row = models.rows[i];
      assert.equal(row.parameters, size.parameters);
      assert.equal(row.stateBytes, size.stateBytes);
      assert.equal(row.cacheBytes, 1000 * size.cacheBytesPerToken);
    }
    const args = ["mechanisms", "--width", "64", "--heads", "4", "--context", "100", "--json"];
    const list = JSON.parse((await linnet(folder, args)).stdout);
    assert.deepEqual(
      list.rows.map((row: { id: string }) => row.id),
      mechanisms.map(({ id }) => id),
    );
    const row = (id: string) => list.rows.find((one: { id: string }) => one.id === id);
    // Linear: 4 heads × (16 × 16 + 16) floats; softmax: keys and values of 64 floats a token each.
    assert.deepEqual([row("linear").stateBytes, row("linear").cacheBytes], [4 * 4 * (16 * 16 + 16), 0]);
    assert.deepEqual([row("softmax").stateBytes, row("softmax").cacheBytes], [0, 100 * 4 * 2 * 64]);
  }),
);

test("a machine's report and its figures are JSON, progress is plain lines in a pipe", { timeout }, () =>
  inFolder(async (folder) => {
    const found = await linnet(folder, ["doctor", "--json", "--threads", "1"]);
    assert.equal(found.code, 0, found.stderr + found.stdout);
    const { findings } = JSON.parse(found.stdout);
    for (const subject of ["node", "simd", "device", "kernels"])
      assert.ok(
        findings.some((finding: { subject: string }) => finding.subject === subject),
        subject,
      );
    const args = [
      "bench",
      "gla",
      "--batch",
      "1",
      "--time",
      "32",
      "--contexts",
      "64,16",
      "--threads",
      "1",
      "--json",
    ];
    const figures = await linnet(folder, args, { env: { FORCE_COLOR: "1" } });
    assert.equal(figures.code, 0, figures.stderr);
    const [row] = JSON.parse(figures.stdout).rows;
    assert.ok(row.trainTokensPerSecond > 0 && row.prefillTokensPerSecond > 0);
    assert.deepEqual(
      row.decode.map((rate: { context: number }) => rate.context),
      [16, 64],
    );
    assert.equal(row.decode[0].stateBytes, row.decode[1].stateBytes);
    for (const mark of ["\r", "\u001b[K"]) assert.ok(!figures.stderr.includes(mark), "no bar in a pipe");
  }),
);

test("colours follow NO_COLOR", { timeout }, () =>
  inFolder(async (folder) => {
    const colour = "\u001b[";
    const forced = await linnet(folder, ["train", "nowhere"], { env: { FORCE_COLOR: "1" } });
    assert.ok(forced.stderr.includes(colour));
    const plain = await linnet(folder, ["train", "nowhere"], { env: { FORCE_COLOR: "1", NO_COLOR: "1" } });
    assert.ok(!plain.stderr.includes(colour));
  }),
);
