import type { Device } from "../../device/device.ts";
import { ConfigError, FormatError } from "../../errors.ts";
import { LanguageModel } from "../../generate/language-model.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { randomWindows, type TokenBatch } from "../../text/batches.ts";
import type { TokenSource } from "../../text/token-file.ts";
import type { Tokenizer, TokenizerData } from "../../text/tokenizer.ts";
import { tokenizerFrom } from "../../text/tokenizer-from.ts";
import { type Task, type TrainStep, train } from "../../train/loop.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import { type RunConfig, RunFolder } from "../../train/run-folder.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import { languageModelling, scoreText, type TextScore } from "./index.ts";

/** How a language model is trained, as a run keeps it. */
export interface LanguageTraining {
  readonly batch: number;
  readonly time: number;
  readonly steps: number;
  readonly learningRate: number;
  readonly warmup: number;
  readonly weightDecay: number;
  readonly clip: number;
  readonly beta2: number;
  readonly seed: number;
  readonly accumulate: number;
  readonly recompute: boolean;
  /** Steps between saves. */
  readonly saveEvery: number;
  /** Share of the text at its end that is not trained on. */
  readonly heldOut: number;
}

/** A training run that stands in a folder. */
export interface LanguageRunConfig extends RunConfig {
  readonly task: "language-modelling";
  readonly model: DecoderConfig;
  readonly tokenizer: TokenizerData;
  readonly text: string;
  readonly training: LanguageTraining;
}

/** A text as ids: what is trained on and what is held out. */
export interface TokenizedText {
  readonly train: TokenSource;
  readonly heldOut: Int32Array;
  readonly heldOutBytes: number;
}

/** Cuts a text in two at a line's end and tokenizes both. */
export function tokenizeText(text: string, tokenizer: Tokenizer, share: number): TokenizedText {
  const near = Math.floor(text.length * (1 - share));
  const line = text.indexOf("\n", near);
  const cut = line < 0 ? near : line + 1;
  const heldOut = text.slice(cut);
  return {
    train: tokenizer.encode(text.slice(0, cut)),
    heldOut: tokenizer.encode(heldOut),
    heldOutBytes: new TextEncoder().encode(heldOut).length,
  };
}

/** A language model in training, with the folder that keeps it. */
export class LanguageRun {
  readonly folder: RunFolder;
  readonly config: LanguageRunConfig;
  readonly model: Decoder;
  readonly tokenizer: Tokenizer;
  readonly device: Device;
  readonly task: Task<TokenBatch>;
  #optimizer: Optimizer;
  #step = 0;
  #seconds = 0;

  private constructor(folder: RunFolder, config: LanguageRunConfig, device: Device) {
    this.folder = folder;
    this.config = config;
    this.device = device;
    this.tokenizer = tokenizerFrom(config.tokenizer);
    this.model = new Decoder(config.model);
    initialize(this.model, device, new Random(config.training.seed, "init"));
    this.task = languageModelling(this.model, device, { recompute: config.training.recompute });
    this.#optimizer = this.makeOptimizer();
  }

  /** Begins a run in a new folder. */
  static async create(path: string, config: LanguageRunConfig, device: Device): Promise<LanguageRun> {
    // A model that cannot be built leaves no folder behind.
    new Decoder(config.model);
    return new LanguageRun(await RunFolder.create(path, config), config, device);
  }

  /** Opens a run where its last save left it. */
  static async resume(path: string, device: Device): Promise<LanguageRun> {
    const folder = await RunFolder.open(path);
    const run = new LanguageRun(folder, languageConfig(folder), device);
    run.#optimizer.dispose();
    const { optimizer, step, seconds } = await folder.resume(run.model, () => run.makeOptimizer(), device);
    run.#optimizer = optimizer;
    run.#step = step;
    run.#seconds = seconds;
    return run;
  }

  /** Steps done. */
  get step(): number {
    return this.#step;
  }

  /**
   * Trains on, saving every so often and when it ends, be it by `signal`, by `seconds` or by leaving the loop.
   *
   * @param options.seconds Seconds of training at most, those before a resume included.
   */
  async *train(
    ids: TokenSource,
    options: { readonly signal?: AbortSignal; readonly seconds?: number; readonly steps?: number } = {},
  ): AsyncGenerator<TrainStep> {
    const { training } = this.config;
    const steps = options.steps ?? training.steps;
    const before = this.#seconds;
    const lines: object[] = [];
    const save = async (): Promise<void> => {
      await this.folder.log(lines.splice(0));
      const { model: module } = this;
      await this.folder.save({
        module,
        optimizer: this.#optimizer,
        step: this.#step,
        seconds: this.#seconds,
      });
    };
    const { batch, time, accumulate, seed } = training;
    try {
      for await (const step of train(this.task, {
        ...{ device: this.device, optimizer: this.#optimizer, accumulate, seed, steps, from: this.#step + 1 },
        batches: randomWindows(ids, { batch, time }, new Random(seed, "batches")),
        schedule: cosineSchedule({ steps, warmup: Math.min(training.warmup, steps - 1), floor: 0.1 }),
        ...(options.signal === undefined ? {} : { signal: options.signal }),
        ...(options.seconds === undefined ? {} : { seconds: options.seconds - before }),
      })) {
        this.#step = step.step;
        this.#seconds = before + step.seconds;
        const { step: number, loss, learningRate, gradientNorm, skipped } = step;
        lines.push({
          step: number,
          loss,
          learningRate,
          gradientNorm,
          ...(skipped ? { skipped } : {}),
          seconds: this.#seconds,
        });
        if (step.step % training.saveEvery === 0) await save();
        yield step;
      }
    } finally {
      if (lines.length > 0) await save();
    }
  }

  /** How well the model predicts the held-out text. */
  score(text: TokenizedText): Promise<TextScore> {
    const { batch, time } = this.config.training;
    return scoreText(this.task, this.device, text.heldOut, text.heldOutBytes, { batch, time });
  }

  /** The model with its tokenizer, for sessions. */
  languageModel(): LanguageModel {
    return new LanguageModel(this.model, this.tokenizer, this.device);
  }

  private makeOptimizer(): Optimizer {
    const { learningRate, weightDecay, clip, beta2 } = this.config.training;
    return new Optimizer(adamW({ beta2 }), this.model.namedParameters(), { learningRate, weightDecay, clip });
  }
}

/** The trained model of a run folder. */
export async function openLanguageModel(path: string, device: Device): Promise<LanguageModel> {
  const folder = await RunFolder.open(path);
  const config = languageConfig(folder);
  const model = new Decoder(config.model);
  await folder.loadModel(model, device);
  return new LanguageModel(model, tokenizerFrom(config.tokenizer), device);
}

function languageConfig(folder: RunFolder): LanguageRunConfig {
  if (folder.config.task !== "language-modelling") {
    throw new FormatError(
      `[run] ${folder.path} holds a run of another task: expected language-modelling, got ${folder.config.task}`,
    );
  }
  return folder.config as LanguageRunConfig;
}

/** Training options of a run, with the defaults that fit a laptop. */
export function trainingOptions(given: Partial<LanguageTraining>): LanguageTraining {
  const options: LanguageTraining = {
    ...{
      batch: 8,
      time: 256,
      steps: 1000,
      learningRate: 2e-3,
      warmup: 50,
      weightDecay: 0.1,
      clip: 1,
      beta2: 0.95,
    },
    ...{ seed: 0, accumulate: 1, recompute: false, saveEvery: 100, heldOut: 0.05 },
    ...given,
  };
  for (const name of ["batch", "time", "steps", "accumulate", "saveEvery"] as const) {
    if (!Number.isInteger(options[name]) || options[name] < 1) {
      throw new ConfigError(`[train] ${name} is a whole number >= 1, got ${options[name]}`);
    }
  }
  if (!(options.learningRate > 0))
    throw new ConfigError(`[train] learningRate is a number > 0, got ${options.learningRate}`);
  return options;
}
