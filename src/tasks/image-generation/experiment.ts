import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { evaluate, train } from "../../train/loop.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import type { Schedule } from "../../train/schedules.ts";
import { generateImages } from "./generate.ts";
import { chooseImages, countOf, type Images } from "./images.ts";
import type { PixelOutput } from "./output.ts";
import { bitsOf, drawBatch, imageTask, type PixelBatch, PixelModel } from "./pixel-model.ts";
import { type ImagePreset, pixelModelConfig } from "./presets.ts";

/** What is learned from and what is held out. */
export interface ImageData {
  readonly train: Images;
  readonly heldOut: Images;
}

/** How one contender went. */
export interface ImageRun {
  readonly name: string;
  readonly output: PixelOutput["id"];
  /** Bits of a value of held-out images, no class told. */
  readonly bits: number;
  readonly steps: number;
  readonly images: number;
  readonly seconds: number;
  readonly parameters: number;
  readonly curve: readonly { readonly step: number; readonly seconds: number; readonly bits: number }[];
}

/** What is told while contenders train. */
export type ImageEvent =
  | {
      readonly kind: "begin";
      readonly name: string;
      /** In training from here on, and gone after the end. */
      readonly model: PixelModel;
    }
  | {
      readonly kind: "step";
      readonly name: string;
      readonly step: number;
      /** Of the batch. */
      readonly bits: number;
      /** Share of the budget that is used. */
      readonly done: number;
    }
  | {
      readonly kind: "look";
      readonly name: string;
      readonly step: number;
      readonly seconds: number;
      /** Of a few held-out images. */
      readonly bits: number;
      readonly samples: Images;
      readonly model: PixelModel;
    }
  | {
      readonly kind: "end";
      readonly run: ImageRun;
      readonly model: PixelModel;
      readonly samples: Images;
      /** A row a held-out image: itself, and completions of its first half. */
      readonly completions: Images;
      /** A row a class; none where the set has none. */
      readonly ofClasses: Images | undefined;
    };

/** Options of `compareImages`. */
export interface ImageComparisonOptions {
  readonly seed?: number;
  readonly only?: readonly string[];
  readonly output?: PixelOutput["id"];
  /** Seconds of each contender instead of the preset's. */
  readonly seconds?: number;
  readonly steps?: number;
  /** Images of a sheet of samples on the way and at the end; 16 unless given. */
  readonly samples?: number;
  readonly signal?: AbortSignal;
}

/** Completions of each held-out image on the sheet of the end. */
export const completionsEach = 4;

/** Images of each class on the sheet of the end. */
export const imagesOfClass = 8;

/** Trains every contender of a preset, one after another, and shows what they draw as they go. */
export async function* compareImages(
  preset: ImagePreset,
  data: ImageData,
  device: Device,
  options: ImageComparisonOptions = {},
): AsyncGenerator<ImageEvent> {
  const names = Object.keys(preset.contenders);
  const unknown = options.only?.find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new ConfigError(`[images] unknown contender "${unknown}": expected some of ${names.join(", ")}`);
  for (const name of options.only ?? names) yield* trainOne(name, preset, data, device, options);
}

/** Batches of the first held-out images. */
function heldOutBatches(
  model: PixelModel,
  { heldOut }: ImageData,
  most: number,
  batch: number,
): PixelBatch[] {
  const count = Math.min(most, countOf(heldOut));
  return Array.from({ length: Math.ceil(count / batch) }, (_, i) => {
    const size = Math.min(batch, count - i * batch);
    return model.batchOf(
      chooseImages(
        heldOut,
        Array.from({ length: size }, (_, n) => i * batch + n),
      ),
    );
  });
}

async function* trainOne(
  name: string,
  preset: ImagePreset,
  data: ImageData,
  device: Device,
  options: ImageComparisonOptions,
): AsyncGenerator<ImageEvent> {
  const { seed = 1, signal } = options;
  const { shape, labels } = data.train;
  const classes = labels === undefined ? 0 : labels.reduce((most, label) => Math.max(most, label), 0) + 1;
  const { output = "mixture" } = options;
  const model = new PixelModel(
    pixelModelConfig(preset.contenders[name]!, preset.sizes, shape, {
      ...{ output, classes, seesNeighbours: preset.seesNeighbours ?? false },
    }),
  );
  initialize(model, device, new Random(seed, "init"));
  const { learningRate, weightDecay, batch } = preset;
  const optimizer = new Optimizer(preset.rule(), model.namedParameters(), {
    ...{ learningRate, weightDecay, clip: 1 },
  });
  const budget = new Budget(options.steps ?? preset.steps, options.seconds ?? preset.seconds);
  const task = imageTask(model, device);
  const few = heldOutBatches(model, data, Math.ceil(preset.heldOut / 10), 16);
  const curve: { step: number; seconds: number; bits: number }[] = [];
  let last = 0;
  try {
    yield { kind: "begin", name, model };
    for await (const { step, loss, seconds } of train(task, {
      ...{ device, optimizer, seed, steps: budget.steps, schedule: budget.schedule(preset) },
      ...(budget.seconds === undefined ? {} : { seconds: budget.seconds }),
      batches: (index) => drawBatch(model, data.train, batch, new Random(seed, `batch ${index}`)),
      ...(signal === undefined ? {} : { signal }),
    })) {
      last = step;
      yield { kind: "step", name, step, bits: bitsOf(loss), done: budget.done(step) };
      if (budget.done(step) * preset.looks < curve.length + 1 || budget.done(step) >= 1) continue;
      const bits = bitsOf(await evaluate(task, device, few));
      curve.push({ step, seconds, bits });
      const samples = await draw(model, device, options);
      yield { kind: "look", name, step, seconds, bits, samples, model };
    }
    const spent = budget.spent;
    const bits = bitsOf(await evaluate(task, device, heldOutBatches(model, data, preset.heldOut, 16)));
    curve.push({ step: last, seconds: spent, bits });
    const run = {
      ...{ name, output, bits, steps: last, images: last * batch, seconds: spent, curve },
      parameters: model.parameterCount,
    };
    yield { kind: "end", run, model, ...(await sheetsOf(model, data, device, options)) };
  } finally {
    optimizer.dispose();
    model.dispose();
  }
}

function draw(model: PixelModel, device: Device, options: ImageComparisonOptions): Promise<Images> {
  const { samples: count = 16, seed = 1, signal } = options;
  return generateImages(model, device, { count, seed, ...(signal === undefined ? {} : { signal }) });
}

async function sheetsOf(
  model: PixelModel,
  { heldOut }: ImageData,
  device: Device,
  options: ImageComparisonOptions,
): Promise<{ samples: Images; completions: Images; ofClasses: Images | undefined }> {
  const { seed = 1, signal } = options;
  const base = { seed, ...(signal === undefined ? {} : { signal }) };
  const rows = Math.min(4, countOf(heldOut));
  const each = completionsEach + 1;
  const numbers = Array.from({ length: rows * each }, (_, n) => Math.floor(n / each));
  const given = chooseImages(heldOut, numbers);
  const completed = await generateImages(model, device, { ...base, count: rows * each, given });
  const size = completed.pixels.length / (rows * each);
  for (let row = 0; row < rows; row++) {
    const at = row * each * size;
    completed.pixels.set(given.pixels.subarray(at, at + size), at);
  }
  const classes = model.config.classes ?? 0;
  const labels = Array.from({ length: classes * imagesOfClass }, (_, n) => Math.floor(n / imagesOfClass));
  return {
    samples: await draw(model, device, options),
    completions: completed,
    ofClasses:
      classes === 0
        ? undefined
        : await generateImages(model, device, { ...base, count: labels.length, label: labels }),
  };
}

/** Steps or seconds, whichever ends first. */
class Budget {
  readonly steps: number;
  readonly seconds: number | undefined;
  readonly #began = performance.now();

  constructor(steps: number, seconds: number | undefined) {
    this.steps = steps;
    this.seconds = seconds;
  }

  get spent(): number {
    return (performance.now() - this.#began) / 1000;
  }

  done(step: number): number {
    const ofTime = this.seconds === undefined ? 0 : this.spent / this.seconds;
    return Math.min(1, Math.max(step / this.steps, ofTime));
  }

  /** Half a cosine over the budget, be it of steps or of time; or the same rate throughout. */
  schedule({ warmup, decays }: ImagePreset): Schedule {
    return (step) => {
      const rise = step < warmup ? step / warmup : 1;
      return decays ? rise * 0.5 * (1 + Math.cos(Math.PI * this.done(step))) : rise;
    };
  }
}
