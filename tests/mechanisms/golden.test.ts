/** Golden files that others computed hold for every form on every device, and `verify` says so in the way it promises. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { goldenPaths, readGolden } from "../../scripts/verify/golden.ts";
import { type NamedDevice, relativeRms, rowsOf } from "../../scripts/verify/rows.ts";
import { subjectOf } from "../../scripts/verify/subjects.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { closeTargets, targets } from "../conformance/targets.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = join(root, "tests/golden/ops");
const scratch = mkdtempSync(join(tmpdir(), "linnet-verify-"));
after(() => rmSync(scratch, { recursive: true }));
after(closeTargets);

const devices: NamedDevice[] = [["host", hostDevice({ dtype: "float64", poison: true })]];
for (const target of (await targets()).slice(1)) devices.push([target.name, await target.open(1)]);

for (const golden of goldenPaths(folder).map(readGolden)) {
  const subject = subjectOf(golden);
  if ("why" in subject) continue;
  test(`golden ${golden.file} holds for every form`, () => {
    const rows = rowsOf(golden, subject, devices);
    const wrong = rows.filter(({ ok }) => !ok);
    assert.deepEqual(wrong, []);
    assert.ok(rows.some(({ quantity }) => quantity === "output"));
  });
}

test("golden comparison sees NaN, a wrong length and a missing output", () => {
  assert.equal(relativeRms([1, Number.NaN], [1, 2]), Number.POSITIVE_INFINITY);
  assert.equal(relativeRms([1], [1, 2]), Number.POSITIVE_INFINITY);
  assert.equal(relativeRms(undefined, [1]), Number.POSITIVE_INFINITY);
  assert.equal(relativeRms([0], [0]), 0);
  assert.equal(relativeRms([1e-9], [0]), Number.POSITIVE_INFINITY);
});

function verify(...rest: string[]): { status: number | null; stdout: string; stderr: string } {
  const call = ["--import", "tsx", "scripts/verify.ts", ...rest];
  return spawnSync(process.execPath, call, { cwd: root, encoding: "utf8" });
}

test("verify prints rows, skipped and failed as JSON", () => {
  copyFileSync(join(folder, "delta-mild-s0.safetensors"), join(scratch, "delta-mild-s0.safetensors"));
  copyFileSync(join(folder, "rwkv6-s0.safetensors"), join(scratch, "rwkv6-s0.safetensors"));
  const { status, stdout } = verify(scratch, "--json");
  const { rows, skipped, failed } = JSON.parse(stdout);
  assert.equal(status, 0);
  assert.equal(failed, 0);
  assert.deepEqual(Object.keys(skipped[0]), ["file", "op", "why"]);
  const keys = ["file", "op", "form", "device", "quantity", "relativeRms", "bound", "ok"];
  assert.deepEqual(Object.keys(rows[0]), keys);
  const quantities = new Set(rows.map(({ quantity }: { quantity: string }) => quantity));
  for (const name of ["output", "finalState", "grad.q", "grad.beta", "grad.initialState"])
    assert.ok(quantities.has(name));
});

test("verify fails for a file whose values are changed", () => {
  const bytes = readFileSync(join(folder, "gla-mild-s0.safetensors"));
  bytes.writeDoubleLE(bytes.readDoubleLE(bytes.length - 8) + 0.1, bytes.length - 8);
  const path = join(scratch, "changed.safetensors");
  writeFileSync(path, bytes);
  const { status, stdout } = verify(path, "--json");
  assert.equal(status, 1);
  assert.ok(JSON.parse(stdout).failed > 0);
});

test("verify says which file is missing, truncated or foreign and exits with 2", () => {
  const truncated = join(scratch, "truncated.safetensors");
  writeFileSync(truncated, readFileSync(join(folder, "gla-mild-s0.safetensors")).subarray(0, 3000));
  const foreign = join(root, "tests/golden/safetensors/reference.safetensors");
  for (const path of [join(scratch, "nowhere"), truncated, foreign]) {
    const { status, stderr, stdout } = verify(path, "--json");
    assert.equal(status, 2, path);
    assert.ok(stderr.includes(path), stderr);
    assert.equal(stdout, "");
  }
});
