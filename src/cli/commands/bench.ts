import type { Command } from "commander";
import type { WasmDevice } from "../../device/wasm/wasm.ts";
import { LanguageModel } from "../../generate/language-model.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { type Preset, preset } from "../../models/presets/index.ts";
import { modelSize } from "../../models/size.ts";
import { initialize } from "../../nn/module.ts";
import { Progress } from "../../report/progress.ts";
import { formatBytes, formatCount, table } from "../../report/table.ts";
import { languageModelling } from "../../tasks/language-modelling/index.ts";
import { Random } from "../../tensor/random.ts";
import { bytes } from "../../text/bytes.ts";
import { train } from "../../train/loop.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, positiveInteger, positiveIntegers } from "../flags.ts";
import { type DecodeRate, decodeRates } from "../rates.ts";

interface Options extends DeviceOptions {
  readonly batch: number;
  readonly time: number;
  readonly contexts: readonly number[];
  readonly published?: boolean;
  readonly json?: boolean;
}

/** What was measured of one preset. */
interface BenchRow {
  readonly preset: string;
  readonly parameters: number;
  readonly threads: number;
  readonly trainTokensPerSecond: number;
  readonly prefillTokensPerSecond: number;
  readonly decode: readonly Omit<DecodeRate, "model">[];
}

const usual = ["gated-delta-net", "linear-transformer", "transformer"];

/** `linnet bench`: what training, reading and writing cost on this machine. */
export function bench(program: Command): void {
  deviceFlags(
    program
      .command("bench")
      .description("Measure training, reading and writing of presets on this machine.")
      .argument("[presets...]", `ids of linnet models (default: ${usual.join(", ")})`)
      .option("--batch <number>", "rows of a training batch", positiveInteger, 8)
      .option("--time <number>", "tokens of a row", positiveInteger, 256)
      .option(
        "--contexts <numbers>",
        "contexts after which a token is timed",
        positiveIntegers,
        [100, 1000, 4000],
      )
      .option("--published", "the published sizes in place of the tiny ones")
      .option("--json", "print JSON"),
  )
    .addHelpText(
      "after",
      `
Examples:
  linnet bench
  linnet bench gla mamba2 --contexts 100,10000
  linnet bench qwen3-next --json

Random weights and tokens: speed does not depend on them. Close other programs.`,
    )
    .action((ids: string[], options: Options) => withInterrupt((signal) => run(ids, options, signal)));
}

async function run(ids: readonly string[], options: Options, signal: AbortSignal): Promise<void> {
  const chosen = (ids.length === 0 ? usual : ids).map(preset);
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const device = await openDevice(options);
  const rows: BenchRow[] = [];
  try {
    say(`${describeDevice(device)}, batch ${options.batch} × ${options.time} tokens\n`);
    const progress = new Progress("bench", process.stderr);
    try {
      for (const [i, one] of chosen.entries()) {
        progress.update(i / chosen.length, one.id);
        rows.push(await measure(one, options, device, signal));
      }
      progress.update(1, "done");
    } finally {
      progress.end();
    }
  } finally {
    device.close();
  }
  if (options.json) console.log(JSON.stringify({ rows }, null, 2));
  else show(rows);
}

async function measure(
  { id, tiny, published }: Preset,
  options: Options,
  device: WasmDevice,
  signal: AbortSignal,
): Promise<BenchRow> {
  const config = options.published ? published : tiny;
  const decoder = new Decoder(config);
  initialize(decoder, device, new Random(1));
  const trainTokensPerSecond = await trainingRate(decoder, config, options, device, signal);
  const model = new LanguageModel(decoder, bytes(), device);
  try {
    const prefillTokensPerSecond = readingRate(model, options.time);
    const decode = decodeRates({ [id]: model }, options.contexts).map(({ model: _name, ...rate }) => rate);
    const { threads } = device.info();
    const { parameters } = modelSize(config);
    return { preset: id, parameters, threads, trainTokensPerSecond, prefillTokensPerSecond, decode };
  } finally {
    model.dispose();
  }
}

/** Steps that are timed, after a few that warm up. */
const [warm, timed] = [3, 7];

/** Tokens a second of whole steps: forward, backward, clipping and AdamW. The median of a few steps. */
async function trainingRate(
  decoder: Decoder,
  { vocabularySize }: DecoderConfig,
  { batch, time }: Options,
  device: WasmDevice,
  signal: AbortSignal,
): Promise<number> {
  const optimizer = new Optimizer(adamW(), decoder.namedParameters(), { learningRate: 1e-4, clip: 1 });
  const draw = (stream: string): Int32Array =>
    new Random(5, stream).integers(new Int32Array(batch * time), 0, vocabularySize);
  const data = { inputs: draw("inputs"), targets: draw("targets"), batch, time };
  const seconds: number[] = [];
  let began = performance.now();
  try {
    const task = languageModelling(decoder, device);
    const steps = warm + timed;
    for await (const { step } of train(task, { device, optimizer, steps, batches: () => data, signal })) {
      if (step > warm) seconds.push((performance.now() - began) / 1000);
      began = performance.now();
    }
  } finally {
    optimizer.dispose();
  }
  return (batch * time) / median(seconds);
}

/** Tokens a second of one sequence that is read into a state. */
function readingRate(model: LanguageModel, time: number): number {
  const seconds: number[] = [];
  for (let i = 0; i < 5; i++) {
    const slot = model.takeSlot();
    const ids = Int32Array.from({ length: time }, (_, t) => (31 * t + i) % 256);
    const began = performance.now();
    model.advance([slot], ids, time);
    seconds.push((performance.now() - began) / 1000);
    model.giveSlot(slot);
  }
  return time / median(seconds);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

function show(rows: readonly BenchRow[]): void {
  console.log(
    table(rows, [
      { title: "preset", value: (row) => row.preset },
      { title: "weights", value: (row) => formatCount(row.parameters), align: "right" },
      { title: "train tokens/s", value: (row) => Math.round(row.trainTokensPerSecond) },
      { title: "read tokens/s", value: (row) => Math.round(row.prefillTokensPerSecond) },
    ]),
  );
  const decode = rows.flatMap((row) => row.decode.map((rate) => ({ preset: row.preset, ...rate })));
  console.log(
    `\n${table(decode, [
      { title: "preset", value: (row) => row.preset },
      { title: "context", value: (row) => row.context },
      { title: "µs a token", value: (row) => Math.round(row.microseconds) },
      { title: "bytes of state", value: (row) => formatBytes(row.stateBytes), align: "right" },
    ])}`,
  );
}
