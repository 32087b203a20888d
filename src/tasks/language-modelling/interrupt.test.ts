import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { endlessConfig, endlessIds } from "../../../tests/support/endless-run.ts";
import { hostDevice } from "../../device/host/host.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { LanguageRun } from "./run.ts";

const script = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Starts a program of this repository and ends it by a signal once it has printed enough. */
async function ended(
  args: readonly string[],
  signal: NodeJS.Signals,
  enough: (output: string) => boolean,
  delay: number,
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ["--import", "tsx", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  let isEnding = false;
  const listen = (data: Buffer): void => {
    output += data.toString();
    if (isEnding || !enough(output)) return;
    isEnding = true;
    setTimeout(() => child.kill(signal), delay);
  };
  child.stdout.on("data", listen);
  child.stderr.on("data", listen);
  const code = await new Promise<number | null>((resolve) => child.on("exit", resolve));
  return { code, output };
}

async function inFolder(work: (path: string) => Promise<void>): Promise<void> {
  const path = await mkdtemp(join(tmpdir(), "linnet-interrupt-"));
  try {
    await work(path);
  } finally {
    await rm(path, { recursive: true });
  }
}

async function losses(run: LanguageRun, steps: number): Promise<number[]> {
  const found: number[] = [];
  for await (const { loss, step } of run.train(endlessIds)) {
    found.push(loss);
    if (step === steps) break;
  }
  return found;
}

test("a run killed in the middle of a save resumes from its last save, bit for bit", async () => {
  await inFolder(async (path) => {
    const whole = await LanguageRun.create(
      join(path, "whole"),
      endlessConfig({ saveEvery: 1000 }),
      hostDevice({ dtype: "float32" }),
    );
    const expected = await losses(whole, 60);
    for (const [i, delay] of [0, 1, 3].entries()) {
      const folder = join(path, `killed ${i}`);
      const args = [script("../../../tests/support/endless-run.ts"), "train", folder];
      const { output } = await ended(args, "SIGKILL", (text) => text.split("\n").length > 4 + i, delay);
      const printed = Number(output.trim().split("\n").at(-1));
      const run = await LanguageRun.resume(folder, hostDevice({ dtype: "float32" }));
      assert.ok(run.step >= printed && run.step <= printed + 2, `${run.step} after ${printed}`);
      const { step } = run;
      assert.deepEqual(await losses(run, step + 4), expected.slice(step, step + 4));
      const metrics = await (await RunFolder.open(folder)).metrics();
      assert.deepEqual(
        metrics.map((line) => line["step"]),
        Array.from({ length: step + 4 }, (_, n) => n + 1),
      );
    }
  });
});

test("Ctrl-C saves, says so by its exit code, and the run goes on", async () => {
  await inFolder(async (path) => {
    const text = join(path, "text.txt");
    await writeFile(text, "the whale and the sea and the ship and the whale.\n".repeat(200));
    const folder = join(path, "run");
    const small = [
      "--width",
      "16",
      "--layers",
      "1",
      "--heads",
      "1",
      "--tokenizer",
      "bytes",
      "--threads",
      "1",
    ];
    const args = [
      "train",
      text,
      "--out",
      folder,
      "--steps",
      "100000",
      "--batch",
      "1",
      "--time",
      "16",
      "--json",
    ];
    const { code, output } = await ended(
      [script("../../cli/main.ts"), ...args, ...small],
      "SIGINT",
      (all) => all.includes('"step":25,'),
      0,
    );
    assert.equal(code, 130, output);
    const run = await LanguageRun.resume(folder, hostDevice({ dtype: "float32" }));
    assert.ok(run.step >= 25);
    assert.deepEqual((await readdir(folder)).sort(), [
      ...["config.json", "metrics.jsonl", "model.safetensors", "resume.safetensors"],
    ]);
  });
});
