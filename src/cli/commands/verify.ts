import type { Command } from "commander";
import {
  type ModelRow,
  modelFolders,
  type PassedModel,
  verifyModel,
} from "../../checkpoint/verify-models.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { exitCodes, withInterrupt } from "../exit.ts";
import { deviceFlags } from "../flags.ts";

interface VerifyOptions extends DeviceOptions {
  readonly models: string;
  readonly json?: boolean;
}

/** `linnet verify`: published models against the numbers that other libraries computed with them. */
export function verify(program: Command): void {
  deviceFlags(
    program
      .command("verify")
      .description("Compare published models with the numbers other libraries computed, in every form.")
      .requiredOption("--models <folder>", "a model with golden.safetensors beside it, or a folder of such")
      .option("--json", "print { rows, skipped, failed }")
      .addHelpText("after", "\nExample:\n  linnet verify --models tests/golden/models"),
  ).action((options: VerifyOptions) => withInterrupt((signal) => run(options, signal)));
}

async function run(options: VerifyOptions, signal: AbortSignal): Promise<void> {
  const device = await openDevice(options);
  const rows: ModelRow[] = [];
  const skipped: PassedModel[] = [];
  try {
    for (const folder of await modelFolders(options.models)) {
      const result = await verifyModel(folder, device, signal);
      if ("why" in result) skipped.push(result);
      else rows.push(...result);
      if (!options.json) console.log(lineOf(result));
    }
  } finally {
    device.close();
  }
  const failed = rows.filter(({ ok }) => !ok).length;
  if (options.json) console.log(JSON.stringify({ rows, skipped, failed }));
  else console.log(`${rows.length - failed} hold, ${failed} fail, ${skipped.length} models passed over`);
  if (failed > 0) process.exitCode = exitCodes.failed;
}

function lineOf(result: readonly ModelRow[] | PassedModel): string {
  if ("why" in result) return `- ${result.model}: ${result.why}`;
  const failed = result.filter(({ ok }) => !ok);
  const worst = Math.max(...result.map(({ relativeRms }) => relativeRms)).toExponential(1);
  const checks =
    failed.length === 0 ? `${result.length} checks` : failed.map(({ check }) => check).join(", ");
  return `${failed.length === 0 ? "✔" : "✖"} ${result[0]!.model.padEnd(20)} ${worst}  ${checks}`;
}
