import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { Progress } from "../../report/progress.ts";
import { generateImages } from "../../tasks/image-generation/generate.ts";
import { openPixelModel } from "../../tasks/image-generation/run.ts";
import { printImages, sheetOf } from "../../tasks/image-generation/sheet.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, finiteNumber, positiveInteger, wholeNumber } from "../flags.ts";
import { encodePng } from "../png.ts";

interface Options extends DeviceOptions {
  readonly count: number;
  readonly label?: number;
  readonly temperature: number;
  readonly seed: number;
  readonly out?: string;
  readonly json?: boolean;
}

/** `linnet draw`: images by a model that `linnet experiment images` trained. */
export function draw(program: Command): void {
  deviceFlags(
    program
      .command("draw")
      .description("Draw images with a model that experiment images has trained.")
      .argument("<folder>", "folder of a contender, such as runs/images-quick/linear")
      .option("--count <number>", "images, drawn all at once", positiveInteger, 16)
      .option("--label <number>", "only images of this class", wholeNumber)
      .option("--temperature <number>", "below 1 draws what is likelier", finiteNumber, 1)
      .option("--seed <number>", "the same seed draws the same images", wholeNumber, 0)
      .option("--out <file>", "PNG of all of them (default: drawn.png in the folder)")
      .option("--json", "print JSON")
      .addHelpText("after", "\nExample:\n  linnet draw runs/images-quick/linear --label 7"),
  ).action((folder: string, options: Options) => withInterrupt((signal) => run(folder, options, signal)));
}

async function run(folder: string, options: Options, signal: AbortSignal): Promise<void> {
  const { count, label, temperature, seed, out = join(folder, "drawn.png") } = options;
  const device = await openDevice(options);
  const progress = new Progress("drawing", process.stderr);
  try {
    const model = await openPixelModel(folder, device);
    const began = performance.now();
    const images = await generateImages(model, device, {
      ...{ count, temperature, seed, signal },
      ...(label === undefined ? {} : { label }),
      onProgress: (done, total) => progress.update(done / total, `value ${done} of ${total}`),
    });
    progress.end();
    const imagesPerSecond = (1000 * count) / (performance.now() - began);
    await writeFile(out, await encodePng(sheetOf(images)));
    if (options.json) console.log(JSON.stringify({ folder, count, label, file: out, imagesPerSecond }));
    else console.log(`${printImages(images)}\n${imagesPerSecond.toPrecision(3)} images a second: ${out}`);
  } finally {
    progress.end();
    device.close();
  }
}
