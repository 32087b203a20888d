import { type Command, Option } from "commander";
import { ConfigError } from "../../errors.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Progress } from "../../report/progress.ts";
import { LanguageRun, type TokenizedText, tokenizeText } from "../../tasks/language-modelling/run.ts";
import {
  type LanguageTraining,
  optimizerNames,
  scheduleNames,
  trainingOptions,
} from "../../tasks/language-modelling/training.ts";
import { corpusOfRun, readCorpus } from "../corpus.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, finiteNumber, positiveInteger } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { tokenizerOf } from "../tokenizer-of.ts";

interface TrainOptions extends DeviceOptions {
  readonly resume?: string;
  readonly out?: string;
  readonly pattern: string;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly tokenizer: string;
  readonly steps?: number;
  readonly batch?: number;
  readonly time?: number;
  readonly learningRate?: number;
  readonly accumulate?: number;
  readonly seed?: number;
  readonly recompute?: boolean;
  readonly optimizer?: LanguageTraining["optimizer"];
  readonly schedule?: LanguageTraining["schedule"];
  readonly carry?: boolean;
  readonly average?: number;
  readonly evaluateEvery?: number;
  readonly patience?: number;
  readonly seconds?: number;
  readonly json?: boolean;
}

/** Options that a run keeps, by the names it keeps them under. */
const kept = [
  ...["steps", "batch", "time", "learningRate", "accumulate", "seed", "recompute", "optimizer", "schedule"],
  ...["carry", "average", "evaluateEvery", "patience", "seconds"],
] as readonly (keyof TrainOptions & keyof LanguageTraining)[];

const examples = `
Examples:
  linnet train book.txt
  linnet train notes/ --pattern gla --width 256 --layers 6 --steps 5000
  linnet train book.txt --pattern gated-delta,gated-delta,gated-delta,softmax
  linnet train book.txt --seconds 600
  linnet train book.txt --evaluate-every 100 --patience 5 --average 0.99
  linnet train --resume runs/book`;

/** `linnet train`: a language model on a file or folder of text, or the continuation of a run. */
export function train(program: Command): void {
  const command = deviceFlags(
    program
      .command("train")
      .description("Train a language model on text, or go on with a run.")
      .argument(
        "[text]",
        "file, folder or .jsonl with a text field; for --resume the one the run was trained on",
      )
      .option("--resume <run>", "go on with this run folder")
      .option("--out <folder>", "run folder (default: runs/ and the name of the text)")
      .option("--pattern <ids>", "mixers of the layers, repeated", "gated-delta")
      .option("--width <number>", "model width", positiveInteger, 128)
      .option("--layers <number>", "layers", positiveInteger, 4)
      .option("--heads <number>", "heads", positiveInteger, 4)
      .option("--tokenizer <kind>", "bytes, characters, bpe:VOCABULARY, or a tokenizer.json", "bpe:2048")
      .option("--steps <number>", "optimizer steps", positiveInteger)
      .option("--batch <number>", "rows a batch", positiveInteger)
      .option("--time <number>", "tokens a row", positiveInteger)
      .option("--learning-rate <number>", "largest learning rate", finiteNumber)
      .option("--accumulate <number>", "batches a step", positiveInteger)
      .option("--seed <number>", "seed of weights and batches", Number)
      .option("--recompute", "keep less for the backward pass, compute it again")
      .addOption(
        new Option("--optimizer <name>", "what moves the weights (default: muon)").choices(optimizerNames),
      )
      .addOption(
        new Option(
          "--schedule <name>",
          "course of the learning rate (default: clock with --seconds, else cosine)",
        ).choices(scheduleNames),
      )
      .option("--carry", "rows run on from batch to batch with their state: for long documents")
      .option(
        "--average <decay>",
        "publish an exponential average of the weights, such as 0.99",
        finiteNumber,
      )
      .option("--evaluate-every <steps>", "score the held-out text so often", positiveInteger)
      .option("--patience <number>", "stop after so many evaluations without a better one", positiveInteger)
      .option("--seconds <number>", "train for this time", finiteNumber)
      .option("--json", "print a JSON line a step"),
  );
  command
    .addHelpText("after", examples)
    .action((text: string | undefined, options: TrainOptions) =>
      withInterrupt((signal) => run(text, options, signal)),
    );
}

async function run(path: string | undefined, options: TrainOptions, signal: AbortSignal): Promise<void> {
  if (path === undefined && options.resume === undefined) {
    throw new ConfigError(
      "[train] there is nothing to train on: expected a text file or folder, or --resume RUN",
    );
  }
  const device = await openDevice(options);
  try {
    const job =
      options.resume === undefined
        ? await begin(path!, options, device)
        : await LanguageRun.resume(options.resume, device);
    const corpus = await (path === undefined ? corpusOfRun(job.config.text) : readCorpus(path));
    const text = tokenizeText(corpus.text, job.tokenizer, job.training.heldOut);
    const say = options.json ? (line: string) => void process.stderr.write(`${line}\n`) : console.log;
    say(`${job.model.parameterCount.toLocaleString("en")} weights, run folder ${job.folder.path}`);
    say(describeDevice(device));
    await learn(job, text, options, signal);
    if (text.heldOut.length > job.training.time) {
      const score = await job.score(text);
      say(
        `held-out text: ${score.nats.toFixed(4)} nats a token, ${score.bitsPerByte.toFixed(4)} bits a byte`,
      );
      if (options.json) console.log(JSON.stringify({ run: job.folder.path, ...score }));
    }
    say(`linnet generate ${job.folder.path} --prompt "…"`);
  } finally {
    device.close();
  }
}

/** Trains with a bar; a continued run takes new limits from the command line. */
async function learn(
  job: LanguageRun,
  text: TokenizedText,
  { steps, seconds, resume, json }: TrainOptions,
  signal: AbortSignal,
): Promise<void> {
  const isNew = resume === undefined;
  const progress = new Progress("training", process.stderr);
  const limits = {
    signal,
    ...(isNew || steps === undefined ? {} : { steps }),
    ...(isNew || seconds === undefined ? {} : { seconds }),
  };
  const last = steps ?? job.training.steps;
  const limit = seconds ?? (steps === undefined ? job.training.seconds : undefined);
  for await (const step of job.train(text, limits)) {
    if (json) console.log(JSON.stringify(step));
    const skips = step.skips > 0 ? `, ${step.skips} steps skipped` : "";
    const held = step.evaluation === undefined ? "" : `, held-out ${step.evaluation.toFixed(3)} bits a byte`;
    const share = limit === undefined ? step.step / last : Math.max(step.step / last, step.seconds / limit);
    progress.update(
      step.end === undefined ? Math.min(0.999, share) : 1,
      `step ${step.step} loss ${step.loss.toFixed(3)}${held}${skips}`,
    );
  }
  progress.end();
}

async function begin(
  path: string,
  options: TrainOptions,
  device: Awaited<ReturnType<typeof openDevice>>,
): Promise<LanguageRun> {
  const corpus = await readCorpus(path);
  const tokenizer = await tokenizerOf(options.tokenizer, corpus.text);
  const given = Object.fromEntries(
    kept.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]),
  ) as Partial<LanguageTraining>;
  const byClock: Partial<LanguageTraining> =
    options.seconds === undefined
      ? {}
      : { schedule: "clock", ...(options.steps === undefined ? { steps: 1_000_000_000 } : {}) };
  const training = trainingOptions({ ...byClock, ...given });
  const model: DecoderConfig = {
    ...{
      vocabularySize: tokenizer.vocabularySize,
      width: options.width,
      layers: options.layers,
      heads: options.heads,
    },
    pattern: options.pattern.split(",").map((id) => id.trim()),
    positions: { kind: "rotary" },
    tied: true,
  };
  const name = path
    .replace(/\/+$/, "")
    .split("/")
    .at(-1)!
    .replace(/\.[^.]*$/, "");
  const folder = options.out ?? (await freeFolder(`runs/${name}`));
  return LanguageRun.create(
    folder,
    {
      ...{ format: "linnet-run", version: 1, task: "language-modelling" },
      ...{ model, tokenizer: tokenizer.toJSON(), text: path, training },
    },
    device,
  );
}
