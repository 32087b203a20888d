import type { Device } from "../../device/device.ts";
import { FormatError } from "../../errors.ts";
import { LanguageModel } from "../../generate/language-model.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import type { TokenBatch } from "../../text/batches.ts";
import { loadTokenizer } from "../../text/hugging-face.ts";
import type { TokenSource } from "../../text/token-file.ts";
import type { Tokenizer, TokenizerData } from "../../text/tokenizer.ts";
import { WeightAverage } from "../../train/average.ts";
import { type Task, type TrainOptions, type TrainStep, train } from "../../train/loop.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import { type RunConfig, RunFolder } from "../../train/run-folder.ts";
import { CarriedRows } from "./carry.ts";
import { languageModelling, type TextScore } from "./index.ts";
import { batchesOf, type LearnedText, scoreHeldOut } from "./texts.ts";
import { type LanguageTraining, ruleOf, scheduleOf, trainingOptions } from "./training.ts";

/** A training run that stands in a folder. */
export interface LanguageRunConfig extends RunConfig {
  readonly task: "language-modelling";
  readonly model: DecoderConfig;
  readonly tokenizer: TokenizerData;
  readonly text: string;
  readonly training: LanguageTraining;
}

/** What of the outside a stretch of training depends on. */
export interface TrainLimits {
  readonly signal?: AbortSignal;
  /** Seconds of training in all, those before a resume included. */
  readonly seconds?: number;
  /** Steps in all. */
  readonly steps?: number;
}

/** A language model in training, with the folder that keeps it. */
export class LanguageRun {
  readonly folder: RunFolder;
  readonly config: LanguageRunConfig;
  readonly model: Decoder;
  readonly tokenizer: Tokenizer;
  readonly device: Device;
  readonly task: Task<TokenBatch>;
  readonly training: LanguageTraining;
  readonly #carry: CarriedRows | undefined;
  readonly #average: WeightAverage | undefined;
  #optimizer: Optimizer;
  #step = 0;
  #seconds = 0;

  private constructor(folder: RunFolder, config: LanguageRunConfig, tokenizer: Tokenizer, device: Device) {
    this.folder = folder;
    this.config = config;
    this.device = device;
    this.training = trainingOptions(config.training);
    const { seed, recompute, carry, batch, average } = this.training;
    this.tokenizer = tokenizer;
    this.model = new Decoder(config.model);
    initialize(this.model, device, new Random(seed, "init"));
    this.#carry = carry ? new CarriedRows(this.model, device, batch) : undefined;
    this.#average = average > 0 ? new WeightAverage(this.model, average) : undefined;
    this.task = languageModelling(this.model, device, {
      recompute,
      ...(this.#carry === undefined ? {} : { carry: this.#carry }),
    });
    this.#optimizer = this.makeOptimizer();
  }

  /** Begins a run in a new folder. */
  static async create(path: string, config: LanguageRunConfig, device: Device): Promise<LanguageRun> {
    // A model that cannot be built leaves no folder behind.
    new Decoder(config.model);
    trainingOptions(config.training);
    const tokenizer = await loadTokenizer(config.tokenizer);
    return new LanguageRun(await RunFolder.create(path, config), config, tokenizer, device);
  }

  /** Opens a run where its last save left it. */
  static async resume(path: string, device: Device): Promise<LanguageRun> {
    const folder = await RunFolder.open(path);
    const config = languageConfig(folder);
    const run = new LanguageRun(folder, config, await loadTokenizer(config.tokenizer), device);
    run.#optimizer.dispose();
    const saved = await folder.resume(run.model, () => run.makeOptimizer(), device);
    run.#optimizer = saved.optimizer;
    run.#step = saved.step;
    run.#seconds = saved.seconds;
    run.#carry?.restore(partsUnder("carried/", saved.kept));
    run.#average?.restore(saved.optimizer.steps, partsUnder("average/", saved.kept));
    return run;
  }

  /** Steps done. */
  get step(): number {
    return this.#step;
  }

  /**
   * Trains on, saving every so often and when it ends, be it by `signal`, by `seconds` or by leaving the loop.
   *
   * @param text The ids to learn, or both parts of a text: then evaluations see the held-out one.
   */
  async *train(text: TokenSource | LearnedText, limits: TrainLimits = {}): AsyncGenerator<TrainStep> {
    const { saveEvery } = this.training;
    const lines: object[] = [];
    const save = async (): Promise<void> => {
      await this.folder.log(lines.splice(0));
      await this.folder.save({
        ...{ module: this.model, optimizer: this.#optimizer, step: this.#step, seconds: this.#seconds },
        ...(this.#carry === undefined ? {} : { carried: this.#carry.tensors }),
        ...(this.#average === undefined ? {} : { average: this.#average.values }),
      });
    };
    try {
      for await (const step of train(this.task, this.optionsFor(text, limits))) {
        this.#step = step.step;
        this.#seconds = step.seconds;
        lines.push(metricsOf(step));
        if (step.step % saveEvery === 0) await save();
        yield step;
      }
    } finally {
      if (lines.length > 0) await save();
    }
  }

  /** How well the model, or the average of its weights, predicts the held-out text. */
  score(text: LearnedText): Promise<TextScore> {
    return this.#average === undefined ? this.scoreNow(text) : this.#average.use(() => this.scoreNow(text));
  }

  /** The model with its tokenizer, for sessions. */
  languageModel(): LanguageModel {
    return new LanguageModel(this.model, this.tokenizer, this.device);
  }

  private optionsFor(text: TokenSource | LearnedText, limits: TrainLimits): TrainOptions<TokenBatch> {
    const { training, device } = this;
    const { accumulate, seed, evaluateEvery, patience } = training;
    const steps = limits.steps ?? training.steps;
    const seconds = limits.seconds ?? (limits.steps === undefined ? training.seconds : undefined);
    const held = "heldOut" in text || "heldOutDocuments" in text ? text : undefined;
    const batches = batchesOf(text, training);
    // Steps that are asked for by number are planned by number.
    const planned =
      limits.steps === undefined ? training : { ...training, schedule: plannedBySteps(training) };
    return {
      ...{ device, optimizer: this.#optimizer, accumulate, seed, steps, from: this.#step + 1, batches },
      ...{ schedule: scheduleOf(planned, steps), elapsed: this.#seconds },
      ...(limits.signal === undefined ? {} : { signal: limits.signal }),
      ...(seconds === undefined ? {} : { seconds }),
      ...(this.#average === undefined ? {} : { average: this.#average }),
      ...(held === undefined || evaluateEvery === 0
        ? {}
        : { evaluateEvery, evaluate: async () => (await this.scoreNow(held)).bitsPerByte }),
      ...(patience === 0 ? {} : { patience }),
    };
  }

  private scoreNow(text: LearnedText): Promise<TextScore> {
    return scoreHeldOut(text, this.task, this.device, this.tokenizer, this.training);
  }

  private makeOptimizer(): Optimizer {
    const { learningRate, weightDecay, clip } = this.training;
    return new Optimizer(ruleOf(this.training), this.model.namedParameters(), {
      ...{ learningRate, weightDecay, clip },
    });
  }
}

function plannedBySteps({ schedule }: LanguageTraining): LanguageTraining["schedule"] {
  return schedule === "clock" ? "cosine" : schedule;
}

function metricsOf({
  step,
  loss,
  learningRate,
  gradientNorm,
  skipped,
  seconds,
  evaluation,
}: TrainStep): object {
  return {
    ...{ step, loss, learningRate, gradientNorm },
    ...(skipped ? { skipped } : {}),
    ...(evaluation === undefined ? {} : { evaluation }),
    seconds,
  };
}

function partsUnder(prefix: string, kept: ReadonlyMap<string, Float32Array>): Map<string, Float32Array> {
  const own = [...kept].filter(([name]) => name.startsWith(prefix));
  return new Map(own.map(([name, values]) => [name.slice(prefix.length), values]));
}

/** The trained model of a run folder. */
export async function openLanguageModel(path: string, device: Device): Promise<LanguageModel> {
  const folder = await RunFolder.open(path);
  const config = languageConfig(folder);
  const model = new Decoder(config.model);
  await folder.loadModel(model, device);
  return new LanguageModel(model, await loadTokenizer(config.tokenizer), device);
}

function languageConfig(folder: RunFolder): LanguageRunConfig {
  if (folder.config.task !== "language-modelling") {
    throw new FormatError(
      `[run] ${folder.path} holds a run of another task: expected language-modelling, got ${folder.config.task}`,
      "linnet draw is for runs of images, linnet classify for those that label texts.",
    );
  }
  return folder.config as LanguageRunConfig;
}
