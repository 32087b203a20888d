/** Runs as a person has them: interrupted, killed, damaged, on a full disk. */
import assert from "node:assert/strict";
import { cp, mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { inFolder, linnet, start } from "./process.ts";

const timeout = 240_000;
const small = [
  ...["--width", "32", "--layers", "2", "--heads", "2", "--tokenizer", "bytes", "--threads", "1"],
  ...["--time", "32", "--batch", "2"],
];

async function stepsOf(run: string): Promise<number[]> {
  const lines = (await readFile(join(run, "metrics.jsonl"), "utf8")).trim().split("\n");
  return lines.map((line) => (JSON.parse(line) as { step: number }).step);
}

const counted = (last: number): number[] => Array.from({ length: last }, (_, i) => i + 1);

async function withText(folder: string): Promise<void> {
  await writeFile(join(folder, "book.txt"), "the whale and the sea and the ship.\n".repeat(200));
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  test(`training that gets ${signal} saves, ends with 130, and goes on where it was`, { timeout }, () =>
    inFolder(async (folder) => {
      await withText(folder);
      const job = start(folder, ["train", "book.txt", ...small, "--steps", "100000", "--json"]);
      await job.said('"step":5,');
      job.child.kill(signal);
      const { code, stderr } = await job.ended;
      assert.equal(code, 130, stderr);
      assert.match(stderr, /interrupted/);
      const run = join(folder, "runs", "book");
      const done = (await stepsOf(run)).length;
      assert.deepEqual(await stepsOf(run), counted(done));
      assert.ok(done >= 5);
      const steps = String(done + 3);
      const more = await linnet(folder, [
        "train",
        "--resume",
        "runs/book",
        "--steps",
        steps,
        "--threads",
        "1",
      ]);
      assert.equal(more.code, 0, more.stderr);
      assert.deepEqual(await stepsOf(run), counted(done + 3));
      const written = await linnet(folder, [
        ...["generate", "runs/book", "--prompt", "the", "--max-new-tokens", "4", "--threads", "1", "--json"],
      ]);
      assert.equal(written.code, 0, written.stderr);
      assert.equal(JSON.parse(written.stdout).ids.length, 4);
    }),
  );
}

test(
  "writing waits for whoever reads, goes on past the end of documents, and ends with 130",
  { timeout },
  () =>
    inFolder(async (folder) => {
      await withText(folder);
      const made = await linnet(folder, ["train", "book.txt", ...small, "--steps", "2", "--out", "run"]);
      assert.equal(made.code, 0, made.stderr);
      const options = [
        "generate",
        "run",
        "--prompt",
        "whale",
        "--threads",
        "1",
        "--ignore-end",
        "--temperature",
        "2",
      ];
      const job = start(folder, [...options, "--max-new-tokens", "1000000"]);
      await job.said("whale");
      job.child.stdout!.pause();
      await new Promise((resolve) => setTimeout(resolve, 2000));
      job.child.stdout!.resume();
      job.child.kill("SIGINT");
      const { code, stdout, stderr } = await job.ended;
      assert.equal(code, 130, stderr);
      assert.ok(stdout.length > 20, `${stdout.length} characters`);
      const asked = await linnet(folder, [
        ...options,
        "--max-new-tokens",
        "5",
        "--json",
        "--log-probabilities",
      ]);
      const result = JSON.parse(asked.stdout) as { ids: number[]; logProbabilities: number[] };
      assert.deepEqual([result.ids.length, result.logProbabilities.length], [5, 5]);
    }),
);

test("a run that is killed outright keeps its last save", { timeout }, () =>
  inFolder(async (folder) => {
    await withText(folder);
    const job = start(folder, ["train", "book.txt", ...small, "--steps", "100000", "--json"]);
    await job.said('"step":230,');
    job.child.kill("SIGKILL");
    await job.ended;
    const more = await linnet(folder, [
      "train",
      "--resume",
      "runs/book",
      "--steps",
      "1000",
      "--seconds",
      "0.01",
    ]);
    assert.equal(more.code, 0, more.stderr);
    const steps = await stepsOf(join(folder, "runs", "book"));
    assert.deepEqual(steps, counted(steps.length));
    assert.ok(steps.length > 200, `${steps.length} steps`);
  }),
);

test(
  "a text that is read from disk gives the same steps again, and goes on without its source",
  { timeout },
  () =>
    inFolder(async (folder) => {
      await withText(folder);
      const losses = async (run: string): Promise<number[]> => {
        const lines = (await readFile(join(folder, run, "metrics.jsonl"), "utf8")).trim().split("\n");
        return lines.map((line) => (JSON.parse(line) as { loss: number }).loss);
      };
      const made = await linnet(folder, [
        "train",
        "book.txt",
        ...small,
        "--steps",
        "4",
        "--stream",
        "--out",
        "a",
      ]);
      assert.equal(made.code, 0, made.stderr);
      assert.ok((await readdir(join(folder, "a"))).includes("text.tokens"));
      await rm(join(folder, "book.txt"));
      const more = await linnet(folder, ["train", "--resume", "a", "--steps", "8", "--threads", "1"]);
      assert.equal(more.code, 0, more.stderr);
      await withText(folder);
      const whole = await linnet(folder, [
        "train",
        "book.txt",
        ...small,
        "--steps",
        "4",
        "--stream",
        "--out",
        "b",
      ]);
      assert.equal(whole.code, 0, whole.stderr);
      assert.deepEqual((await losses("a")).slice(0, 4), await losses("b"));
      assert.deepEqual(await stepsOf(join(folder, "a")), counted(8));
    }),
);

test(
  "documents of a .jsonl or a folder are rows of their own, and stay it when the run goes on",
  { timeout },
  () =>
    inFolder(async (folder) => {
      const texts = Array.from(
        { length: 30 },
        (_, i) => `${"the whale and the sea ".repeat(1 + (i % 3))}${i}`,
      );
      const lines = texts.map((text) => `${JSON.stringify({ text })}\n`).join("");
      await writeFile(join(folder, "mails.jsonl"), lines);
      await mkdir(join(folder, "mails"));
      for (const [i, text] of texts.entries())
        await writeFile(join(folder, "mails", `${String(i).padStart(2, "0")}.txt`), text);
      const train = async (...more: string[]): Promise<number[]> => {
        const options = [...small, "--schedule", "constant", "--json"];
        const args = more[0] === "--resume" ? more : [...more, ...options];
        const { code, stderr } = await linnet(folder, ["train", ...args, "--threads", "1"]);
        assert.equal(code, 0, stderr);
        assert.match(stderr, args.includes("--json") ? /held-out text: \d\.\d+ nats/ : /^/);
        const run = more[more.indexOf(more[0] === "--resume" ? "--resume" : "--out") + 1]!;
        const metrics = (await readFile(join(folder, run, "metrics.jsonl"), "utf8")).trim().split("\n");
        return metrics.map((line) => (JSON.parse(line) as { loss: number }).loss);
      };
      for (const how of ["rows", "packed"]) {
        const given = ["--documents", how, "--steps", "30"];
        const whole = await train("mails.jsonl", ...given, "--out", `whole-${how}`);
        assert.deepEqual(await train("mails", ...given, "--out", `folder-${how}`), whole);
        await train("mails.jsonl", "--documents", how, "--steps", "24", "--stream", "--out", `half-${how}`);
        const config = JSON.parse(await readFile(join(folder, `half-${how}`, "config.json"), "utf8"));
        assert.equal(config.training.documents, how);
        assert.deepEqual(await train("--resume", `half-${how}`, "--steps", "30"), whole);
      }
      await withText(folder);
      for (const more of [[], ["--stream"]]) {
        const alone = await linnet(folder, ["train", "book.txt", ...small, "--documents", "rows", ...more]);
        assert.match(alone.stderr, /expected two or more, got 1/);
        assert.equal(alone.code, 2);
        assert.ok(!(await readdir(folder)).includes("runs"), "no run is left behind");
      }
    }),
);

test("a classifier of an experiment labels new texts, also one that was interrupted", { timeout }, () =>
  inFolder(async (folder) => {
    for (const label of ["ham", "spam"]) {
      await mkdir(join(folder, "mails", label), { recursive: true });
      for (let i = 0; i < 12; i++)
        await writeFile(join(folder, "mails", label, `${i}.txt`), `${label} and ${label} again, ${i}`);
    }
    const experiment = ["experiment", "classification", "mails", "--only", "linear", "--threads", "1"];
    const made = await linnet(folder, [...experiment, "--out", "runs/mails"]);
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, /linnet classify runs\/mails\/linear FILES/);
    const run = join(folder, "runs", "mails", "linear");
    assert.deepEqual((await readdir(run)).sort(), ["config.json", "metrics.jsonl", "model.safetensors"]);
    const steps = await stepsOf(run);
    assert.deepEqual(steps, counted(steps.length));
    await writeFile(join(folder, "new.jsonl"), '{"text":"ham and ham, 5"}\n{"text":"spam, spam again"}\n');
    const asked = ["classify", "runs/mails/linear", "new.jsonl", "--text", "spam and spam", "--threads", "1"];
    const found = await linnet(folder, [...asked, "--json"]);
    assert.equal(found.code, 0, found.stderr);
    const lines = found.stdout.trim().split("\n");
    const answers = lines.map((line) => JSON.parse(line) as { name: string; label: string });
    assert.deepEqual(
      answers.map(({ label }) => label),
      ["spam", "ham", "spam"],
    );
    assert.equal(answers[1]!.name, "new.jsonl:1");
    const several = await linnet(folder, ["classify", "runs/mails", "--text", "ham"]);
    assert.match(several.stderr, /expected one of runs\/mails\/linear/);
    assert.equal(several.code, 2);
    const again = await linnet(folder, [...experiment, "--out", "runs/mails"]);
    assert.match(again.stderr, /already holds a run/);
    const job = start(folder, [...experiment, "--preset", "paper", "--out", "runs/short"]);
    await job.said("step 1 ");
    job.child.kill("SIGINT");
    assert.equal((await job.ended).code, 130);
    const short = await linnet(folder, ["classify", "runs/short/linear", "--text", "ham"]);
    assert.equal(short.code, 0, short.stderr);
    assert.match(short.stdout, /^(ham|spam) +\d+\.\d % {2}ham\n$/);
  }),
);

test("damaged and foreign runs end with 1 and say what is wrong", { timeout }, () =>
  inFolder(async (folder) => {
    await withText(folder);
    const made = await linnet(folder, ["train", "book.txt", ...small, "--steps", "3", "--out", "good"]);
    assert.equal(made.code, 0, made.stderr);
    const damaged = async (
      name: string,
      damage: (run: string) => Promise<void>,
      message: RegExp,
      args: string[],
    ): Promise<void> => {
      const run = join(folder, name);
      await cp(join(folder, "good"), run, { recursive: true });
      await damage(run);
      const { code, stderr } = await linnet(
        folder,
        args.map((arg) => (arg === "RUN" ? name : arg)),
      );
      assert.match(stderr, message, name);
      assert.equal(code, 1, name);
      assert.doesNotMatch(stderr, /\n\s+at /, `${name}: no stack`);
    };
    const resume = ["train", "--resume", "RUN", "--steps", "9", "--threads", "1"];
    const generate = ["generate", "RUN", "--max-new-tokens", "2", "--threads", "1"];
    const flip = async (file: string): Promise<void> => {
      const bytes = await readFile(file);
      bytes[bytes.length - 9]! ^= 4;
      await writeFile(file, bytes);
    };
    await damaged(
      "flipped",
      (run) => flip(join(run, "model.safetensors")),
      /do not fit their checksum/,
      generate,
    );
    await damaged("flipped-resume", (run) => flip(join(run, "resume.safetensors")), /checksum/, resume);
    const cut = (run: string) => truncate(join(run, "model.safetensors"), 4000);
    await damaged("cut", cut, /model\.safetensors/, generate);
    const other = async (run: string): Promise<void> => {
      const config = JSON.parse(await readFile(join(run, "config.json"), "utf8"));
      config.model.width = 48;
      await writeFile(join(run, "config.json"), JSON.stringify(config));
    };
    await damaged("other", other, /holds another model: .*expected \[/, resume);
    const broken = (run: string) => writeFile(join(run, "config.json"), '{"format":');
    await damaged("broken", broken, /config\.json is not JSON/, resume);
    const again = await linnet(folder, ["train", "book.txt", ...small, "--steps", "3", "--out", "good"]);
    assert.match(again.stderr, /already holds a run/);
    assert.equal(again.code, 1);
  }),
);

test("a full disk leaves the files of the last save as they were", { timeout }, () =>
  inFolder(async (folder) => {
    await withText(folder);
    const made = await linnet(folder, ["train", "book.txt", ...small, "--steps", "3", "--out", "run"]);
    assert.equal(made.code, 0, made.stderr);
    const files = ["config.json", "model.safetensors", "resume.safetensors"];
    const read = () => Promise.all(files.map((file) => readFile(join(folder, "run", file))));
    const before = await read();
    // Files of more than 64 KiB cannot be written: what a full disk says to a save.
    const full = await linnet(folder, ["train", "--resume", "run", "--steps", "6", "--threads", "1"], {
      before: "ulimit -f 64",
    });
    assert.equal(full.code, 1, full.stderr + full.stdout);
    assert.match(full.stderr, /could not be written|cannot be written|EFBIG|too large/i);
    assert.deepEqual(await read(), before);
    assert.deepEqual(
      (await readdir(join(folder, "run"))).filter((name) => name.endsWith(".tmp")),
      [],
    );
    const after = await linnet(folder, ["train", "--resume", "run", "--steps", "6", "--threads", "1"]);
    assert.equal(after.code, 0, after.stderr);
    assert.deepEqual(await stepsOf(join(folder, "run")), counted(6));
  }),
);
