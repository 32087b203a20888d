import { existsSync } from "node:fs";
import { type Command, Option } from "commander";
import { ConfigError } from "../../errors.ts";
import { mechanism } from "../../mechanisms/registry.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Progress } from "../../report/progress.ts";
import { LanguageRun } from "../../tasks/language-modelling/run.ts";
import { checkDocuments, isScored, type LearnedText } from "../../tasks/language-modelling/texts.ts";
import {
  documentNames,
  type LanguageTraining,
  optimizerNames,
  scheduleNames,
  trainingOptions,
} from "../../tasks/language-modelling/training.ts";
import { textFiles } from "../../text/corpus.ts";
import { demoText, isLarge } from "../corpus.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, finiteNumber, positiveInteger, wholeNumber } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { checkTokenizer, type TextPlace, textFor, tokenizerFor } from "../training-text.ts";

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
  readonly documents?: LanguageTraining["documents"];
  readonly average?: number;
  readonly evaluateEvery?: number;
  readonly patience?: number;
  readonly seconds?: number;
  readonly stream?: boolean;
  readonly json?: boolean;
}

/** Options that a run keeps, by the names it keeps them under. */
const kept = [
  ...["steps", "batch", "time", "learningRate", "accumulate", "seed", "recompute", "optimizer", "schedule"],
  ...["carry", "documents", "average", "evaluateEvery", "patience", "seconds"],
] as readonly (keyof TrainOptions & keyof LanguageTraining)[];

const examples = `
Examples:
  linnet train book.txt
  linnet train notes/ --pattern gla --width 256 --layers 6 --steps 5000
  linnet train book.txt --pattern gated-delta,gated-delta,gated-delta,softmax
  linnet train book.txt --seconds 600
  linnet train mails.jsonl --documents rows
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
      .option("--seed <number>", "seed of weights and batches", wholeNumber)
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
      .addOption(
        new Option(
          "--documents <how>",
          "joined: a row is a window of the whole text; rows: one document, its first --time tokens; packed: " +
            "documents one after another (default: joined). A document is a file of the folder or a line of the .jsonl",
        ).choices(documentNames),
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
      .option("--stream", "read the text from disk as it is needed (by itself beyond 128 MiB)")
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
    const { job, text } =
      options.resume === undefined
        ? await begin(path!, options, device, signal)
        : await goOn(options.resume, path, options, device, signal);
    const say = options.json ? (line: string) => void process.stderr.write(`${line}\n`) : console.log;
    say(`${job.model.parameterCount.toLocaleString("en")} weights, run folder ${job.folder.path}`);
    say(describeDevice(device));
    await learn(job, text, options, signal);
    if (isScored(text, job.training)) {
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

/** A run and the text it learns from. */
interface Job {
  readonly job: LanguageRun;
  readonly text: LearnedText;
}

/** Trains with a bar; a continued run takes new limits from the command line. */
async function learn(
  job: LanguageRun,
  text: LearnedText,
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

/** A new run. Whatever can be wrong with it is found before its folder is made. */
async function begin(
  path: string,
  options: TrainOptions,
  device: Awaited<ReturnType<typeof openDevice>>,
  signal: AbortSignal,
): Promise<Job> {
  const pattern = options.pattern.split(",").map((id) => id.trim());
  for (const id of pattern) mechanism(id);
  await checkTokenizer(options.tokenizer);
  const place = await placeOf(path, options);
  const tokenizer = await tokenizerFor(options.tokenizer, place);
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
    pattern,
    positions: { kind: "rotary" },
    tied: true,
  };
  const name = path
    .replace(/\/+$/, "")
    .split("/")
    .at(-1)!
    .replace(/\.[^.]*$/, "");
  // A text in memory that is too short is refused here; ids on disk need the folder.
  const inMemory = place.isStreamed ? undefined : await textFor(place, tokenizer, training, "");
  if (inMemory !== undefined) checkLength(inMemory, training);
  else if (training.documents !== "joined") await checkFiles(path);
  const folder = options.out ?? (await freeFolder(`runs/${name}`));
  const job = await LanguageRun.create(
    folder,
    {
      ...{ format: "linnet-run", version: 1, task: "language-modelling" },
      ...{ model, tokenizer: tokenizer.toJSON(), text: path, training },
    },
    device,
  );
  const text = inMemory ?? (await streamed(job, place, signal));
  return { job, text };
}

/** A run where it stopped, on the text it had or on another. */
async function goOn(
  run: string,
  path: string | undefined,
  options: TrainOptions,
  device: Awaited<ReturnType<typeof openDevice>>,
  signal: AbortSignal,
): Promise<Job> {
  const job = await LanguageRun.resume(run, device);
  const { text: own } = job.config;
  // Ids that the run already has on disk stay where they are: batches are to be what they would have been.
  const hasIds = (path ?? own) === own && existsSync(job.folder.file(tokenFileOf(own, own)));
  const place = hasIds ? { path: own, isStreamed: true } : await placeOf(path ?? own, options);
  const text = place.isStreamed
    ? await streamed(job, place, signal)
    : await textFor(place, job.tokenizer, job.training, "");
  return { job, text };
}

async function placeOf(path: string, { stream = false }: TrainOptions): Promise<TextPlace> {
  return { path, isStreamed: path !== demoText && (stream || (await isLarge(path))) };
}

/** The file of a run that holds the ids of a text: its own, or another that it goes on with. */
function tokenFileOf(path: string, own: string): string {
  return path === own ? "text.tokens" : `${path.replaceAll(/\W+/g, "-")}.tokens`;
}

/** Ids in a file of the run's folder, which is written once. */
async function streamed(job: LanguageRun, place: TextPlace, signal: AbortSignal): Promise<LearnedText> {
  const name = tokenFileOf(place.path, job.config.text);
  const progress = new Progress("reading", process.stderr);
  const onProgress = (tokens: number): void =>
    progress.update(undefined, `${tokens.toLocaleString("en")} tokens`);
  try {
    return await textFor(place, job.tokenizer, job.training, job.folder.file(name), {
      ...{ signal, onProgress },
    });
  } finally {
    progress.end();
  }
}

/** One file that is not .jsonl is one document, whatever is in it. */
async function checkFiles(path: string): Promise<void> {
  const files = await textFiles(path);
  if (!files.some((file) => file.endsWith(".jsonl"))) checkDocuments(files.length);
}

function checkLength(text: LearnedText, { time }: LanguageTraining): void {
  if ("documents" in text) return;
  const { length } = text.train;
  if (length > time) return;
  throw new ConfigError(
    `[train] the text is shorter than the context: expected more than ${time} tokens, got ${length}`,
    "Give a longer text, or a shorter context with --time.",
  );
}
