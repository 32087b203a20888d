/**
 * `npm run verify -- DIR`: every golden file of a directory against every form that applies, on every device of this
 * machine; `npm run verify -- --models DIR`: every published model of a directory against its golden values. `--json`
 * prints { rows, skipped, failed }. Exit status 1 where a row fails, 2 for a directory or file that cannot be read.
 */
import { parseArgs } from "node:util";
import { Command } from "commander";
import { verify } from "../src/cli/commands/verify.ts";
import { describeError, exitCodeOf } from "../src/cli/exit.ts";
import { hostDevice } from "../src/device/host/host.ts";
import { openWasm } from "../src/device/wasm/open.ts";
import { isLinnetError } from "../src/errors.ts";
import { buildKernels } from "./build-kernels.ts";
import { type Golden, goldenPaths, readGolden } from "./verify/golden.ts";
import { type NamedDevice, type Row, rowsOf } from "./verify/rows.ts";
import { subjectOf } from "./verify/subjects.ts";

/** A golden file that was passed over. */
interface Skipped {
  readonly file: string;
  readonly op: string;
  readonly why: string;
}

async function openDevices(): Promise<NamedDevice[]> {
  const devices: NamedDevice[] = [["host", hostDevice({ dtype: "float64", poison: true })]];
  for (const tier of ["a", "b", "c"] as const) {
    const device = await openWasm({ tier, threads: 1, poison: true });
    if (device.info().tier === tier) devices.push([`wasm-${tier}`, device]);
    else device.close();
  }
  return devices;
}

function printTable(rows: readonly Row[], skipped: readonly Skipped[]): void {
  const worst = new Map<string, Row>();
  for (const row of rows) {
    const kind = row.quantity.startsWith("grad.") ? "gradients" : "outputs";
    const key = `${row.op.padEnd(14)} ${row.form.padEnd(11)} ${row.device.padEnd(8)} ${kind.padEnd(10)}`;
    const before = worst.get(key);
    if (before === undefined || row.relativeRms / row.bound > before.relativeRms / before.bound)
      worst.set(key, row);
  }
  for (const [key, row] of worst) {
    const figures = `${row.relativeRms.toExponential(1)} of ${row.bound.toExponential(1)}`;
    console.log(`${row.ok ? "✔" : "✖"} ${key} ${figures}  ${row.file} ${row.quantity}`);
  }
  for (const { file, why } of skipped) console.log(`- ${file}: ${why}`);
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { json: { type: "boolean" }, models: { type: "string" } },
  });
  if (values.models !== undefined) return judgeModels(values.models, values.json ?? false);
  const golden = (positionals.length > 0 ? positionals : ["tests/golden/ops"])
    .flatMap(goldenPaths)
    .map(readGolden);
  await buildKernels(() => {});
  const devices = await openDevices();
  const rows: Row[] = [];
  const skipped: Skipped[] = [];
  for (const one of golden) judge(one, devices, rows, skipped);
  for (const [, device] of devices) device.close();
  const failed = rows.filter(({ ok }) => !ok).length;
  if (values.json) console.log(JSON.stringify({ rows, skipped, failed }));
  else {
    printTable(rows, skipped);
    console.log(`${rows.length - failed} hold, ${failed} fail, ${skipped.length} files skipped`);
  }
  process.exitCode = failed > 0 ? 1 : 0;
}

/** The same as `linnet verify --models`, on kernels built now. */
async function judgeModels(path: string, json: boolean): Promise<void> {
  await buildKernels(() => {});
  const program = new Command().exitOverride();
  verify(program);
  try {
    await program.parseAsync(["verify", "--models", path, ...(json ? ["--json"] : [])], { from: "user" });
  } catch (error) {
    console.error(describeError(error));
    process.exitCode = exitCodeOf(error);
  }
}

function judge(golden: Golden, devices: readonly NamedDevice[], rows: Row[], skipped: Skipped[]): void {
  const { file, op } = golden;
  const subject = subjectOf(golden);
  if ("why" in subject) skipped.push({ file, op, why: subject.why });
  else rows.push(...rowsOf(golden, subject, devices));
}

main().catch((error: unknown) => {
  console.error(isLinnetError(error) ? error.message : error);
  process.exitCode = 2;
});
