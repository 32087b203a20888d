import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { ConfigError } from "../../errors.ts";
import { type Curve, svgPlot, terminalPlot } from "../../report/curves.ts";
import { Progress } from "../../report/progress.ts";
import { formatCount, table } from "../../report/table.ts";
import * as all from "../../tasks/all.ts";
import {
  type Comparison,
  type ComparisonRow,
  type ComparisonRun,
  compare,
  summarize,
} from "../../tasks/comparison/experiment.ts";
import { writeText } from "../../train/run-folder.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, positiveInteger } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { experimentHeadline } from "./experiment-headline.ts";
import { experimentImages } from "./experiment-images.ts";

interface Options extends DeviceOptions {
  readonly preset: string;
  readonly seeds: number;
  readonly only?: string;
  readonly out?: string;
  readonly json?: boolean;
}

const comparisons: readonly Comparison[] = Object.values(all);

/** `linnet experiment`: several mechanisms under one budget. */
export function experiment(program: Command): void {
  const list = comparisons.map(({ id, title }) => `  ${id.padEnd(10)} ${title}`).join("\n");
  const command = deviceFlags(
    program
      .command("experiment")
      .enablePositionalOptions()
      .description("Train several mechanisms on one task under one budget and compare them.")
      .argument("<name>", comparisons.map((comparison) => comparison.id).join(", "))
      .option("--preset <name>", "quick, or paper for the published setting", "quick")
      .option("--seeds <number>", "seeds of each contender", positiveInteger, 1)
      .option("--only <names>", "contenders, parted by commas")
      .option("--out <folder>", "folder of the plot and the figures (default: under runs/)")
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `\nExperiments:\n${list}\n\nExample:\n  linnet experiment mqar --preset quick --seeds 3`,
      ),
  ).action((name: string, options: Options) => withInterrupt((signal) => run(name, options, signal)));
  experimentImages(command);
  experimentHeadline(command);
}

async function run(name: string, options: Options, signal: AbortSignal): Promise<void> {
  const comparison = comparisons.find(({ id }) => id === name);
  if (comparison === undefined) {
    throw new ConfigError(
      `[experiment] unknown experiment "${name}": expected one of ${comparisons.map(({ id }) => id).join(", ")}`,
    );
  }
  const preset = comparison.presets[options.preset];
  if (preset === undefined) {
    throw new ConfigError(
      `[experiment] unknown preset "${options.preset}": expected one of ${Object.keys(comparison.presets).join(", ")}`,
    );
  }
  const only = options.only?.split(",");
  const unknown = only?.find((one) => !preset.contenders.some((contender) => contender.name === one));
  if (unknown !== undefined) {
    throw new ConfigError(
      `[experiment] unknown contender "${unknown}": expected some of ${preset.contenders.map((contender) => contender.name).join(", ")}`,
    );
  }
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const device = await openDevice(options);
  const runs: ComparisonRun[] = [];
  try {
    say(`${comparison.title}: ${preset.description}\n${describeDevice(device)}\n`);
    let progress = new Progress("", process.stderr);
    let current = "";
    const seeds = Array.from({ length: options.seeds }, (_, i) => i + 1);
    for await (const result of compare(preset, device, {
      ...{ seeds, signal },
      ...(only === undefined ? {} : { only }),
      onStep: ({ name: who, seed, step, steps, loss }) => {
        const label = options.seeds > 1 ? `${who} ${seed}` : who;
        if (label !== current) {
          progress.end();
          progress = new Progress(label.padEnd(12), process.stderr);
          current = label;
        }
        progress.update(step / steps, `step ${step} loss ${loss.toFixed(3)}`);
      },
    })) {
      runs.push(result);
    }
    progress.end();
  } finally {
    device.close();
  }
  const folder = options.out ?? (await freeFolder(`runs/${name}-${options.preset}`));
  await keep(folder, comparison, options.preset, runs);
  const rows = summarize(runs);
  if (options.json)
    console.log(JSON.stringify({ experiment: name, preset: options.preset, rows, runs }, null, 2));
  else show(comparison, rows, runs, folder);
}

async function keep(
  folder: string,
  comparison: Comparison,
  preset: string,
  runs: readonly ComparisonRun[],
): Promise<void> {
  await mkdir(folder, { recursive: true });
  const labels = { title: `${comparison.title} (${preset})`, x: "step", y: comparison.figure };
  await writeText(join(folder, "curves.svg"), svgPlot(curvesOf(runs, comparison.figure), labels));
  const figures = { experiment: comparison.id, preset, rows: summarize(runs), runs };
  await writeText(join(folder, "figures.json"), `${JSON.stringify(figures, null, 2)}\n`);
}

function show(
  comparison: Comparison,
  rows: readonly ComparisonRow[],
  runs: readonly ComparisonRun[],
  folder: string,
): void {
  const labels = { title: comparison.title, x: "step", y: comparison.figure };
  console.log(
    `\n${terminalPlot(curvesOf(runs, comparison.figure), labels, Math.min(80, process.stdout.columns ?? 80))}\n`,
  );
  const spread = (mean: number, range: number, seeds: number, digits: number): string =>
    seeds > 1 ? `${mean.toFixed(digits)} ± ${(range / 2).toFixed(digits)}` : mean.toFixed(digits);
  console.log(
    table(rows, [
      { title: "mechanism", value: (row) => row.name },
      { title: "nats", value: (row) => spread(row.nats, row.natsSpread, row.seeds, 4), align: "right" },
      {
        title: "accuracy",
        value: (row) => spread(row.accuracy, row.accuracySpread, row.seeds, 4),
        align: "right",
      },
      { title: "steps", value: (row) => Math.round(row.steps) },
      { title: "seconds", value: (row) => Math.round(row.seconds) },
      { title: "weights", value: (row) => formatCount(row.parameters), align: "right" },
    ]),
  );
  console.log(`\nPlot and figures: ${folder}`);
}

/** One curve a contender, of its first seed. */
function curvesOf(runs: readonly ComparisonRun[], figure: "nats" | "accuracy"): Curve[] {
  return [...new Set(runs.map((run) => run.name))].map((name) => {
    const { curve } = runs.find((run) => run.name === name)!;
    return { name, x: curve.map((point) => point.step), y: curve.map((point) => point[figure]) };
  });
}
