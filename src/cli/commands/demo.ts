import type { Command } from "commander";
import pc from "picocolors";
import type { WasmDevice } from "../../device/wasm/wasm.ts";
import { LanguageModel } from "../../generate/language-model.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Progress } from "../../report/progress.ts";
import { formatBytes, table } from "../../report/table.ts";
import { demoModel, demoTraining } from "../../tasks/language-modelling/demo.ts";
import { LanguageRun } from "../../tasks/language-modelling/run.ts";
import { type TokenizedText, tokenizeText } from "../../tasks/language-modelling/texts.ts";
import { trainingOptions } from "../../tasks/language-modelling/training.ts";
import { Random } from "../../tensor/random.ts";
import { bytePair } from "../../text/byte-pair.ts";
import { trainBytePair } from "../../text/byte-pair-train.ts";
import { mobyDick } from "../corpus.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags } from "../flags.ts";
import { freeFolder } from "../folder.ts";
import { decodeRates } from "../rates.ts";

interface DemoOptions extends DeviceOptions {
  readonly seconds: number;
  readonly out?: string;
  readonly json?: boolean;
}

const contexts = [100, 1_000, 10_000] as const;

/** `linnet demo`: learns from a book for a minute and a half, writes, and says what it cost. */
export function demo(program: Command): void {
  deviceFlags(
    program
      .command("demo")
      .description(
        "Train a small model on Moby Dick for about 90 seconds, let it write, and show what it cost.",
      )
      .option("--seconds <number>", "seconds of training", Number, 90)
      .option("--out <folder>", "run folder (default: a new one under runs/)")
      .option("--json", "print the closing figures as JSON"),
  )
    .addHelpText("after", "\nExamples:\n  linnet demo\n  linnet demo --seconds 300 --out runs/whale")
    .action((options: DemoOptions) => withInterrupt((signal) => runDemo(options, signal)));
}

async function runDemo(options: DemoOptions, signal: AbortSignal): Promise<void> {
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const device = await openDevice(options);
  try {
    const corpus = await mobyDick();
    const tokenizer = bytePair(trainBytePair([corpus.text], demoModel.vocabularySize));
    const training = trainingOptions({ ...demoTraining, seconds: options.seconds });
    const text = tokenizeText(corpus.text, tokenizer, training.heldOut);
    const path = options.out ?? (await freeFolder("runs/moby-dick"));
    const run = await LanguageRun.create(
      path,
      {
        ...{ format: "linnet-run", version: 1, task: "language-modelling" },
        ...{ model: demoModel, tokenizer: tokenizer.toJSON(), text: corpus.name, training },
      },
      device,
    );
    say(pc.bold(`Learning from ${corpus.name}, ${formatBytes(corpus.text.length)} of text`));
    say(
      `  ${run.model.parameterCount.toLocaleString("en")} weights: 3 Gated DeltaNet layers, 1 softmax layer`,
    );
    say(`  ${describeDevice(device)}\n`);
    const rate = await learn(run, text, options.seconds, signal);
    const score = await run.score(text);
    say(`\nHeld-out chapters: ${pc.bold(score.bitsPerByte.toFixed(3))} bits per byte\n`);
    const model = run.languageModel();
    await write(model, say, signal);
    const rows = compare(model, device);
    report(say, rows, rate);
    say(nextSteps(path));
    if (options.json)
      console.log(JSON.stringify({ run: path, bitsPerByte: score.bitsPerByte, tokensPerSecond: rate, rows }));
  } finally {
    device.close();
  }
}

/** Trains with a live bar; the rate in tokens a second. */
async function learn(
  run: LanguageRun,
  text: TokenizedText,
  seconds: number,
  signal: AbortSignal,
): Promise<number> {
  const progress = new Progress("learning", process.stderr);
  let tokens = 0;
  let smooth = Number.NaN;
  let rate = 0;
  for await (const step of run.train(text, { signal })) {
    tokens += step.size;
    smooth = Number.isNaN(smooth) ? step.loss : 0.95 * smooth + 0.05 * step.loss;
    rate = tokens / step.seconds;
    const figures = `loss ${smooth.toFixed(3)}, ${Math.round(rate).toLocaleString("en")} tokens/s`;
    progress.update(step.end === undefined ? Math.min(0.999, step.seconds / seconds) : 1, figures);
  }
  progress.end();
  return rate;
}

async function write(model: LanguageModel, say: (text: string) => void, signal: AbortSignal): Promise<void> {
  const session = model.session();
  const prompt = "The whale";
  const options = { prompt, maxNewTokens: 160, temperature: 0.8, topP: 0.95, seed: 1, signal };
  if (process.stdout.isTTY) {
    process.stdout.write(`${pc.dim(prompt)}`);
    for await (const { text } of session.generate(options)) process.stdout.write(text);
    process.stdout.write("\n\n");
  } else say(`${prompt}${(await session.generate(options)).text}\n`);
  session.dispose();
}

/** Decoding cost at three contexts, beside the same model with softmax everywhere. */
function compare(model: LanguageModel, device: WasmDevice): ReturnType<typeof decodeRates> {
  const twin = new Decoder({ ...demoModel, pattern: [{ id: "softmax", heads: 4 }] });
  initialize(twin, device, new Random(0));
  const softmax = new LanguageModel(twin, model.tokenizer, device);
  const rows = decodeRates({ "this model": model, softmax }, contexts);
  softmax.dispose();
  return rows;
}

function report(say: (text: string) => void, rows: ReturnType<typeof decodeRates>, rate: number): void {
  say(
    `Training: ${Math.round(rate).toLocaleString("en")} tokens a second. Writing, measured on this machine:\n`,
  );
  say(
    table(rows, [
      { title: "model", value: (row) => row.model },
      { title: "context", value: (row) => row.context },
      { title: "µs a token", value: (row) => Math.round(row.microseconds) },
      { title: "bytes of state", value: (row) => formatBytes(row.stateBytes), align: "right" },
    ]),
  );
}

function nextSteps(path: string): string {
  return [
    "",
    pc.bold("The run is kept. Go on with:"),
    `  linnet generate ${path} --prompt "Call me"`,
    `  linnet train --resume ${path} --steps 3000`,
    "  linnet train YOUR_FILE.txt",
  ].join("\n");
}
