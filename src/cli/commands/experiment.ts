import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { ConfigError } from "../../errors.ts";
import { type Curve, svgPlot, terminalPlot } from "../../report/curves.ts";
import { Progress } from "../../report/progress.ts";
import { formatCount, table } from "../../report/table.ts";
import type { Experiment, ExperimentOptions } from "../../tasks/comparison/experiment-entry.ts";
import {
  type ComparisonProgress,
  type ComparisonRow,
  type ComparisonRun,
  summarize,
} from "../../tasks/comparison/trials.ts";
import { experiments } from "../../tasks/experiments.ts";
import { writeText } from "../../train/run-folder.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, positiveInteger } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { unknownName } from "../names.ts";
import { experimentHeadline } from "./experiment-headline.ts";
import { experimentImages } from "./experiment-images.ts";

interface Options extends DeviceOptions {
  readonly preset: string;
  readonly seeds: number;
  readonly only?: string;
  readonly out?: string;
  readonly json?: boolean;
}

/** `linnet experiment`: several mechanisms under one budget. */
export function experiment(program: Command): void {
  const list = experiments.map(({ id, title }) => `  ${id.padEnd(15)} ${title}`).join("\n");
  const command = deviceFlags(
    program
      .command("experiment")
      .enablePositionalOptions()
      .description("Train several mechanisms on one task under one budget and compare them.")
      .argument("<name>", experiments.map(({ id }) => id).join(", "))
      .argument("[data]", "what classification, masked and reverse read")
      .option("--preset <name>", "quick, or paper for the published setting", "quick")
      .option("--seeds <number>", "seeds of each contender", positiveInteger, 1)
      .option("--only <names>", "contenders, parted by commas")
      .option("--out <folder>", "folder of the plot, the figures and classifiers (default: under runs/)")
      .option("--json", "print JSON"),
  );
  experimentImages(command);
  experimentHeadline(command);
  command
    .addHelpText(
      "after",
      `
Experiments:
${list}

Examples:
  linnet experiment mqar --preset quick --seeds 3
  linnet experiment classification mails/    (sub-folders are labels)
  linnet classify runs/classification-quick/linear --text "…"
  linnet experiment masked book.txt --only softmax,linear
  linnet experiment reverse pairs.tsv        (SOURCE<tab>TARGET lines)`,
    )
    .action((name: string, data: string | undefined, options: Options) =>
      withInterrupt((signal) => run(name, data, options, signal)),
    );
}

/** The experiment and the setting that the arguments name; a ConfigError says what there is. */
function chosen(name: string, data: string | undefined, { preset: id, only }: Options) {
  const known = experiments.map((candidate) => candidate.id);
  const found = experiments.find((candidate) => candidate.id === name);
  if (found === undefined) throw unknownName("experiment", "experiment", name, known);
  const preset = found.presets[id];
  if (preset === undefined) throw unknownName("experiment", "preset", id, Object.keys(found.presets));
  if (data === undefined && found.data?.isRequired) {
    throw new ConfigError(
      `[experiment] ${name} reads data: expected a ${found.data.what}, got none`,
      `Such as: linnet experiment ${name} PATH`,
    );
  }
  if (data !== undefined && found.data === undefined)
    throw new ConfigError(`[experiment] ${name} makes its own data: expected no path, got ${data}`);
  const names = preset.contenders.map((contender) => contender.name);
  for (const one of only?.split(",") ?? [])
    if (!names.includes(one)) throw unknownName("experiment", "contender", one, names);
  return { experiment: found, preset };
}

async function run(
  name: string,
  path: string | undefined,
  options: Options,
  signal: AbortSignal,
): Promise<void> {
  const { experiment: found, preset } = chosen(name, path, options);
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const device = await openDevice(options);
  const runs: ComparisonRun[] = [];
  const folder = options.out ?? (await freeFolder(`runs/${name}-${options.preset}`));
  try {
    say(`${found.title}: ${preset.description}\n${describeDevice(device)}\n`);
    await compareAll(found, device, { ...(path === undefined ? {} : { path }), folder, say }, options, {
      ...{ signal, runs },
    });
  } finally {
    device.close();
    // What was finished before an interruption is kept as well.
    if (runs.length > 0) await keep(folder, found, options.preset, runs);
  }
  const rows = summarize(runs);
  if (options.json)
    console.log(JSON.stringify({ experiment: name, preset: options.preset, rows, runs }, null, 2));
  else show(found, rows, runs, folder);
}

async function compareAll(
  { run: compare }: Experiment,
  device: Awaited<ReturnType<typeof openDevice>>,
  places: Pick<ExperimentOptions, "path" | "folder" | "say">,
  options: Options,
  { signal, runs }: { readonly signal: AbortSignal; readonly runs: ComparisonRun[] },
): Promise<void> {
  let progress = new Progress("", process.stderr);
  let current = "";
  const seeds = Array.from({ length: options.seeds }, (_, i) => i + 1);
  const onStep = ({ name: who, seed, step, steps, loss }: ComparisonProgress): void => {
    const label = options.seeds > 1 ? `${who} ${seed}` : who;
    if (label !== current) {
      progress.end();
      progress = new Progress(label.padEnd(12), process.stderr);
      current = label;
    }
    progress.update(step / steps, `step ${step} loss ${loss.toFixed(3)}`);
  };
  const given = {
    ...{ seeds, signal, onStep },
    ...places,
    ...(options.only === undefined ? {} : { only: options.only.split(",") }),
  };
  try {
    for await (const result of compare(options.preset, device, given)) runs.push(result);
  } finally {
    progress.end();
  }
}

async function keep(
  folder: string,
  comparison: Experiment,
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
  comparison: Experiment,
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
  if (rows[0]!.seeds > 1)
    console.log(`\nMean of ${rows[0]!.seeds} seeds ± half of what lies between the best and the worst.`);
  console.log(`\nPlot and figures: ${folder}`);
  if (comparison.keptAs === undefined) return;
  const [best] = [...runs].sort((a, b) => b.accuracy - a.accuracy || a.nats - b.nats);
  console.log(
    `Label other texts: linnet classify ${folder}/${comparison.keptAs(best!, rows[0]!.seeds)} FILES`,
  );
}

/** One curve a contender: the mean over its seeds, with the least and the most of them. */
function curvesOf(runs: readonly ComparisonRun[], figure: "nats" | "accuracy"): Curve[] {
  return [...new Set(runs.map((run) => run.name))].map((name) => {
    const own = runs.filter((run) => run.name === name).map(({ curve }) => curve);
    const x = [...new Set(own.flatMap((curve) => curve.map(({ step }) => step)))].sort((a, b) => a - b);
    // A run that stopped early stays where it came to.
    const values = x.map((step) =>
      own.flatMap((curve) => curve.filter((point) => point.step <= step).at(-1)?.[figure] ?? []),
    );
    const y = values.map((each) => each.reduce((sum, value) => sum + value, 0) / each.length);
    if (own.length < 2) return { name, x, y };
    const [low, high] = [values.map((each) => Math.min(...each)), values.map((each) => Math.max(...each))];
    return { name, x, y, low, high };
  });
}
