import assert from "node:assert/strict";
import { test } from "node:test";
import { svgPlot, terminalPlot } from "./curves.ts";
import { Progress } from "./progress.ts";
import { formatBytes, formatCount, formatSeconds, table } from "./table.ts";

test("tables lay numbers right and words left", () => {
  const text = table(
    [
      { id: "gla", n: 7 },
      { id: "gated-delta", n: 1234 },
    ],
    [
      { title: "id", value: (row) => row.id },
      { title: "n", value: (row) => row.n },
    ],
  );
  assert.deepEqual(text.split("\n"), [
    "id              n",
    "───────────  ────",
    "gla             7",
    "gated-delta  1234",
  ]);
});

test("units are the largest that fit", () => {
  assert.deepEqual([0, 999, 1000, 1_536_000, 4.3e9].map(formatBytes), [
    "0 B",
    "999 B",
    "1.0 kB",
    "1.5 MB",
    "4.3 GB",
  ]);
  assert.deepEqual([12, 45_300, 1.3e9].map(formatCount), ["12", "45.3 k", "1.3 B"]);
  assert.deepEqual([7, 65, 7201, Number.NaN].map(formatSeconds), ["7 s", "1:05", "2:00:01", "–"]);
});

test("progress draws a bar of at most the terminal's width, and lines elsewhere", () => {
  const written: string[] = [];
  const bar = new Progress("train", { isTTY: true, columns: 60, write: (text) => written.push(text) });
  bar.update(1, "loss 1.234, 5,000 tokens/s");
  bar.end();
  const line = written[0]!.replace("\r", "").replace("\u001b[K", "");
  assert.ok(line.length < 60 && line.includes("100 %"), line);
  const plain: string[] = [];
  new Progress("train", { write: (text) => plain.push(text) }).update(0.5, "loss 1");
  assert.equal(plain[0], "train 50 % loss 1\n");
});

test("progress tells the time left once it is known, from where the job began, and at the end what it took", async () => {
  const written: string[] = [];
  const target = { isTTY: true, columns: 80, write: (text: string) => written.push(text) };
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const bar = new Progress("train", target);
  bar.update(0.6, "step 6");
  assert.doesNotMatch(written[0]!, /left/);
  await pause(1000);
  bar.update(0.7, "step 7");
  // A tenth took a second, three are left: what was done before does not count.
  assert.match(written[1]!, / 70 % step 7, [3-9] s left/);
  bar.update(1, "step 10");
  assert.match(written[2]!, /100 % step 10, \d s/);
  new Progress("read", target).update(undefined, "51 tokens");
  assert.match(written[3]!, /^\rread 51 tokens/);
});

test("plots show every curve within their width", () => {
  const curves = [
    { name: "linear", x: [0, 1, 2], y: [3, 2, 1] },
    { name: "softmax & <co>", x: [0, 1, 2], y: [3, Number.NaN, 0.5] },
  ];
  const labels = { title: "copy", x: "step", y: "nats" };
  const text = terminalPlot(curves, labels, 60);
  assert.ok(text.split("\n").every((line) => line.length <= 70));
  assert.ok(text.includes("●") && text.includes("▲"));
  const svg = svgPlot(curves, labels);
  assert.equal(svg.match(/<polyline/g)?.length, 2);
  assert.ok(!svg.includes("<polygon"));
  const several = [{ ...curves[0]!, low: [2.5, 1.5, 0], high: [3.5, 2.5, 2] }];
  const picture = svgPlot(several, labels);
  // Along the most and back along the least; both fit the axis.
  const [, band] = /<polygon points="([^"]*)"/.exec(picture)!;
  const heights = band!.split(" ").map((point) => Number(point.split(",")[1]));
  assert.equal(heights.length, 6);
  assert.ok(heights.every((y) => y >= 44 && y <= 440 - 54));
  assert.ok(heights[0]! < heights[5]! && heights[2]! < heights[3]!);
  assert.ok(svg.includes("softmax &#38; &#60;co&#62;") && !svg.includes("NaN"));
});
