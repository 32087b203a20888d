import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { ConfigError } from "../../errors.ts";
import { svgPlot } from "../../report/curves.ts";
import { Progress } from "../../report/progress.ts";
import { formatCount, formatSeconds, table } from "../../report/table.ts";
import {
  compareImages,
  completionsEach,
  type ImageEvent,
  type ImageRun,
  imagesOfClass,
} from "../../tasks/image-generation/experiment.ts";
import type { Images } from "../../tasks/image-generation/images.ts";
import { outputs, type PixelOutput } from "../../tasks/image-generation/output.ts";
import { type ImagePreset, imagePresets } from "../../tasks/image-generation/presets.ts";
import { createImageRun, type ImageRunSource } from "../../tasks/image-generation/run.ts";
import { printImages, type SheetOptions, sheetOf } from "../../tasks/image-generation/sheet.ts";
import { type RunFolder, writeText } from "../../train/run-folder.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, positiveInteger } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { imageSets, openImages } from "../image-data.ts";
import { encodePng } from "../png.ts";

interface Options extends DeviceOptions {
  readonly preset: string;
  readonly data?: string;
  readonly output: string;
  readonly only?: string;
  readonly seconds?: number;
  readonly steps?: number;
  readonly seed: number;
  readonly samples: number;
  readonly out?: string;
  readonly json?: boolean;
}

/** `linnet experiment images`: models of images under one budget, with sheets of what they draw. */
export function experimentImages(experiment: Command): void {
  const list = Object.entries(imagePresets).map(
    ([name, { description }]) => `  ${name.padEnd(10)} ${description}`,
  );
  deviceFlags(
    experiment
      .command("images")
      .description("Autoregressive images: train linear and softmax attention, look at what they draw.")
      .option("--preset <name>", Object.keys(imagePresets).join(", "), "quick")
      .option("--data <set>", `${imageSets.join(", ")}, or a folder (default: the preset's)`)
      .option("--output <kind>", "mixture (of 10 logistics) or softmax (over 256 values)", "mixture")
      .option("--only <names>", "contenders, parted by commas")
      .option("--seconds <number>", "seconds of training of each contender", positiveInteger)
      .option("--steps <number>", "steps of each contender at most", positiveInteger)
      .option("--seed <number>", "of weights, batches and samples", positiveInteger, 1)
      .option("--samples <number>", "images of a sheet of samples", positiveInteger, 16)
      .option("--out <folder>", "folder of sheets and figures (default: under runs/)")
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `\nPresets:\n${list.join("\n")}\n\nExample:\n  linnet experiment images --only linear --seconds 120`,
      ),
  ).action((options: Options) => withInterrupt((signal) => run(options, signal)));
}

function presetOf(name: string): ImagePreset {
  const preset = imagePresets[name];
  if (preset !== undefined) return preset;
  throw new ConfigError(
    `[images] unknown preset "${name}": expected one of ${Object.keys(imagePresets).join(", ")}`,
  );
}

async function run(options: Options, signal: AbortSignal): Promise<void> {
  const preset = presetOf(options.preset);
  if (!(options.output in outputs)) {
    throw new ConfigError(
      `[images] unknown output "${options.output}": expected one of ${Object.keys(outputs).join(", ")}`,
    );
  }
  const set = options.data ?? preset.data;
  const data = await openImages(set);
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const folder = options.out ?? (await freeFolder(`runs/images-${options.preset}`));
  await mkdir(folder, { recursive: true });
  const device = await openDevice(options);
  const runs: ImageRun[] = [];
  try {
    say(`Images of ${set}: ${preset.description}\n${describeDevice(device)}\n`);
    const { seconds, steps, seed, samples } = options;
    const show = shower(folder, say);
    const keep = keeper(folder, { data: set, training: { preset: options.preset, seed } });
    for await (const event of compareImages(preset, data, device, {
      ...{ seed, samples, signal, output: options.output as PixelOutput["id"] },
      ...(options.only === undefined ? {} : { only: options.only.split(",") }),
      ...(seconds === undefined ? {} : { seconds }),
      ...(steps === undefined ? {} : { steps }),
    })) {
      await keep(event);
      await show(event);
      if (event.kind === "end") runs.push(event.run);
    }
  } finally {
    device.close();
  }
  const figures = { experiment: "images", preset: options.preset, data: set, rows: runs };
  await writeText(join(folder, "figures.json"), `${JSON.stringify(figures, null, 2)}\n`);
  const curves = runs.map(({ name, curve }) => ({
    name,
    x: curve.map((point) => point.seconds),
    y: curve.map((point) => point.bits),
  }));
  const labels = { title: `Images of ${set} (${options.preset})`, x: "seconds", y: "bits per dimension" };
  await writeText(join(folder, "curves.svg"), svgPlot(curves, labels));
  if (options.json) console.log(JSON.stringify({ ...figures, folder }, null, 2));
  else console.log(`\n${tableOf(runs)}\n\nSheets and figures: ${folder}\n${drawingLine(folder, runs)}`);
}

function drawingLine(folder: string, runs: readonly ImageRun[]): string {
  return runs.map(({ name }) => `linnet draw ${join(folder, name)}`).join("\n");
}

/** Keeps each contender in a run folder of its own: its weights at every look and at the end, and what it scored. */
function keeper(folder: string, source: ImageRunSource): (event: ImageEvent) => Promise<void> {
  let run: RunFolder | undefined;
  return async (event) => {
    if (event.kind === "step") return;
    if (event.kind === "begin") {
      run = await createImageRun(join(folder, event.name), event.model, source);
      return;
    }
    const { bits, seconds } = event.kind === "look" ? event : event.run;
    const step = event.kind === "look" ? event.step : event.run.steps;
    await run!.log([{ step, seconds, bits }]);
    await run!.saveModel(event.model, step);
  };
}

/** Shows events as they come: progress, samples in letters, sheets in the folder. */
function shower(folder: string, say: (text: string) => void): (event: ImageEvent) => Promise<void> {
  let progress = new Progress("", process.stderr);
  let current = "";
  const keep = async (name: string, images: Images, options: SheetOptions = {}): Promise<void> => {
    await writeFile(join(folder, `${name}.png`), await encodePng(sheetOf(images, options)));
  };
  return async (event) => {
    if (event.kind === "begin") return;
    if (event.kind === "step") {
      if (event.name !== current) {
        progress = new Progress(event.name.padEnd(8), process.stderr);
        current = event.name;
      }
      progress.update(event.done, `step ${event.step} bits ${event.bits.toFixed(3)}`);
      return;
    }
    progress.end();
    if (event.kind === "look") {
      const at = `${event.name}, step ${event.step}, ${formatSeconds(event.seconds)}`;
      say(
        `${at}: ${event.bits.toFixed(3)} bits per dimension on held-out images\n${printImages(event.samples)}\n`,
      );
      await keep(`${event.name}-step-${event.step}`, event.samples);
      return;
    }
    const { run, samples, completions, ofClasses } = event;
    say(`${run.name}: ${run.bits.toFixed(4)} bits per dimension\n${printImages(samples)}\n`);
    await keep(`${run.name}-samples`, samples);
    await keep(`${run.name}-completions`, completions, { columns: completionsEach + 1 });
    if (ofClasses !== undefined) await keep(`${run.name}-classes`, ofClasses, { columns: imagesOfClass });
  };
}

function tableOf(runs: readonly ImageRun[]): string {
  return table(runs, [
    { title: "mechanism", value: (row) => row.name },
    { title: "output", value: (row) => row.output },
    { title: "bits/dim", value: (row) => row.bits.toFixed(4), align: "right" },
    { title: "steps", value: (row) => row.steps },
    { title: "images", value: (row) => row.images },
    { title: "seconds", value: (row) => Math.round(row.seconds) },
    { title: "weights", value: (row) => formatCount(row.parameters), align: "right" },
  ]);
}
