/** Images from the command line: a folder in, sheets and figures out. */
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { decode, encode } from "fast-png";
import { inFolder, linnet } from "./process.ts";

const timeout = 240_000;

/** An IDX file of bytes. */
function idx(shape: readonly number[], value: (i: number) => number): Uint8Array {
  const size = shape.reduce((product, length) => product * length, 1);
  const lengths = shape.flatMap((length) => [0, 0, length >> 8, length & 255]);
  return Uint8Array.from([
    0,
    0,
    8,
    shape.length,
    ...lengths,
    ...Array.from({ length: size }, (_, i) => value(i)),
  ]);
}

/** A set of bars of two classes, half of its files gzipped. */
async function bars(folder: string): Promise<string> {
  const set = join(folder, "bars");
  await mkdir(set);
  for (const [prefix, count] of [
    ["train", 40],
    ["t10k", 8],
  ] as const) {
    const bar = (i: number): number => (Math.floor(i / 6) % 2 === Math.floor(i / 36) % 2 ? 250 : 5);
    await writeFile(join(set, `${prefix}-images-idx3-ubyte`), idx([count, 6, 6], bar));
    await writeFile(join(set, `${prefix}-labels-idx1-ubyte.gz`), gzipSync(idx([count], (n) => n % 2)));
  }
  return set;
}

/** Draws from what an experiment left. */
async function drawAgain(folder: string, run: string): Promise<void> {
  const args = ["draw", run, "--count", "3", "--label", "1", "--threads", "1"];
  const { code, stdout, stderr } = await linnet(folder, args);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /images a second/);
  const file = await readFile(join(run, "drawn.png"));
  assert.equal(decode(file).channels, 1);
  assert.equal((await linnet(folder, [...args, "--json"])).code, 0);
  assert.deepEqual(await readFile(join(run, "drawn.png")), file, "the same seed draws the same images");
  const wrong = await linnet(folder, [...args.slice(0, 4), "--label", "2"]);
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /class from 0 to 1, got 2/);
}

const few = ["--steps", "20", "--samples", "4", "--threads", "1"];

test("experiment images trains on a folder and leaves sheets that decode", { timeout }, () =>
  inFolder(async (folder) => {
    const set = await bars(folder);
    const out = join(folder, "out");
    const args = ["experiment", "images", "--data", set, "--out", out, ...few, "--json"];
    const { code, stdout, stderr } = await linnet(folder, args);
    assert.equal(code, 0, stderr);
    const { rows, data } = JSON.parse(stdout);
    assert.equal(data, set);
    assert.deepEqual(
      rows.map((row: { name: string; steps: number }) => [row.name, row.steps]),
      [
        ["linear", 20],
        ["softmax", 20],
      ],
    );
    for (const row of rows) assert.ok(row.bits > 0 && row.bits < 8, `${row.bits} bits`);
    assert.match(stderr, /bits per dimension on held-out images/);
    const files = await readdir(out);
    for (const file of ["curves.svg", "figures.json"]) assert.ok(files.includes(file), file);
    // Two pixels between and around images drawn twice as large.
    for (const [sheet, across, down] of [
      ["samples", 2, 2],
      ["completions", 5, 4],
      ["classes", 8, 2],
    ] as const) {
      const { width, height, channels } = decode(await readFile(join(out, `linear-${sheet}.png`)));
      assert.deepEqual([width, height, channels], [across * 14 + 2, down * 14 + 2, 1]);
    }
    await drawAgain(folder, join(out, "softmax"));
  }),
);

test("experiment images reads colour images on white, in halves of their sides", { timeout }, () =>
  inFolder(async (folder) => {
    const set = join(folder, "glyphs");
    await mkdir(set);
    for (let n = 0; n < 12; n++) {
      const data = Uint8Array.from({ length: 64 * 64 * 4 }, (_, i) => (i % 4 === 3 ? 0 : 20 * n));
      await writeFile(join(set, `${n}.png`), encode({ width: 64, height: 64, channels: 4, depth: 8, data }));
    }
    const out = join(folder, "out");
    const args = ["experiment", "images", "--data", set, "--out", out, "--only", "linear", "--json"];
    const { code, stdout, stderr } = await linnet(folder, [
      ...args,
      "--steps",
      "1",
      "--samples",
      "1",
      "--threads",
      "1",
    ]);
    assert.equal(code, 0, stderr);
    assert.equal(JSON.parse(stdout).rows[0].name, "linear");
    const sheet = decode(await readFile(join(out, "linear-completions.png")));
    assert.equal(sheet.channels, 3);
    // What is transparent shows the white ground.
    assert.deepEqual(
      [...sheet.data.subarray((3 * sheet.width + 3) * 3, (3 * sheet.width + 3) * 3 + 3)],
      [255, 255, 255],
    );
    assert.ok(!(await readdir(out)).includes("linear-classes.png"));
  }),
);

test("what experiment images and headline cannot do ends with 2 and says what there is", { timeout }, () =>
  inFolder(async (folder) => {
    const cases = [
      ["images --preset tiny", /unknown preset "tiny": expected one of quick, mnist, colour/],
      ["images --output logits", /unknown output "logits": expected one of mixture, softmax/],
      ["images --data nowhere", /there is no set and no folder "nowhere": expected one of mnist, /],
      ["headline --models gray", /unknown model "gray": expected some of grey, colour/],
      ["headline --methods gpt --models grey", /unknown method "gpt": expected some of linear, /],
      ["headline --whole-seconds -1", /a whole number >= 0 is expected/],
    ] as const;
    for (const [line, message] of cases) {
      const { code, stderr } = await linnet(folder, ["experiment", ...line.split(" ")]);
      assert.equal(code, 2, line);
      assert.match(stderr, message, line);
      assert.doesNotMatch(stderr, /\n\s+at /, `${line}: no stack`);
    }
  }),
);
