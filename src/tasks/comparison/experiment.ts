import type { Device } from "../../device/device.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { train } from "../../train/loop.ts";
import type { UpdateRule } from "../../train/optimizers/optimizer.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import type { Schedule } from "../../train/schedules.ts";
import {
  makeSequences,
  type SequenceMaker,
  type SequenceScore,
  scoreSequences,
  sequenceTask,
} from "./sequences.ts";

/** One contender: a name and its model. */
export interface Contender {
  readonly name: string;
  readonly model: DecoderConfig;
  /** Its own largest learning rate, where the one of the preset does not fit it. */
  readonly learningRate?: number;
}

/** A setting in which contenders meet under one budget. */
export interface ComparisonPreset {
  readonly description: string;
  readonly time: number;
  readonly batch: number;
  readonly steps: number;
  readonly learningRate: number;
  readonly weightDecay: number;
  readonly clip?: number;
  readonly maker: SequenceMaker;
  readonly rule: () => UpdateRule;
  readonly schedule: (steps: number) => Schedule;
  readonly evaluateEvery: number;
  /** Rows scored at each evaluation; drawn once, never trained on. */
  readonly evaluationRows: number;
  /** Ends a contender's training at this accuracy. */
  readonly stopAt?: number;
  readonly contenders: readonly Contender[];
}

/** A comparison by name, with its presets. */
export interface Comparison {
  readonly id: string;
  readonly title: string;
  /** The figure that its plot shows. */
  readonly figure: keyof SequenceScore;
  readonly presets: Readonly<Record<string, ComparisonPreset>>;
}

/** How one contender with one seed went. */
export interface ComparisonRun extends SequenceScore {
  readonly name: string;
  readonly seed: number;
  readonly steps: number;
  readonly seconds: number;
  readonly parameters: number;
  readonly curve: readonly { readonly step: number; readonly nats: number; readonly accuracy: number }[];
}

/** What is told while a comparison runs. */
export interface ComparisonProgress {
  readonly name: string;
  readonly seed: number;
  readonly step: number;
  readonly steps: number;
  readonly loss: number;
}

/** Trains every contender with every seed, one after another, and scores all on the same rows. */
export async function* compare(
  preset: ComparisonPreset,
  device: Device,
  options: {
    readonly seeds: readonly number[];
    readonly only?: readonly string[];
    readonly signal?: AbortSignal;
    readonly onStep?: (progress: ComparisonProgress) => void;
  },
): AsyncGenerator<ComparisonRun> {
  const held = new Random(977, "held-out rows");
  const rows = Math.min(preset.batch, preset.evaluationRows);
  const evaluation = Array.from({ length: Math.ceil(preset.evaluationRows / rows) }, () =>
    makeSequences(preset.maker, rows, preset.time, held),
  );
  for (const contender of preset.contenders) {
    if (options.only !== undefined && !options.only.includes(contender.name)) continue;
    for (const seed of options.seeds)
      yield await runOne(preset, contender, seed, device, evaluation, options);
  }
}

async function runOne(
  preset: ComparisonPreset,
  contender: Contender,
  seed: number,
  device: Device,
  evaluation: Parameters<typeof scoreSequences>[2],
  {
    signal,
    onStep,
  }: { readonly signal?: AbortSignal; readonly onStep?: (progress: ComparisonProgress) => void },
): Promise<ComparisonRun> {
  const { steps, batch, time, maker } = preset;
  const model = new Decoder(contender.model);
  initialize(model, device, new Random(seed, "init"));
  const optimizer = new Optimizer(preset.rule(), model.namedParameters(), {
    learningRate: contender.learningRate ?? preset.learningRate,
    weightDecay: preset.weightDecay,
    ...(preset.clip === undefined ? {} : { clip: preset.clip }),
  });
  const curve: { step: number; nats: number; accuracy: number }[] = [];
  let score: SequenceScore = { nats: Number.NaN, accuracy: 0 };
  let last = 0;
  const began = performance.now();
  try {
    for await (const { step, loss } of train(sequenceTask(model, device), {
      ...{ device, optimizer, steps, seed, schedule: preset.schedule(steps) },
      batches: (index) => makeSequences(maker, batch, time, new Random(seed, `rows ${index}`)),
      ...(signal === undefined ? {} : { signal }),
    })) {
      last = step;
      onStep?.({ name: contender.name, seed, step, steps, loss });
      if (step % preset.evaluateEvery !== 0 && step !== steps) continue;
      score = await scoreSequences(model, device, evaluation);
      curve.push({ step, ...score });
      if (preset.stopAt !== undefined && score.accuracy >= preset.stopAt) break;
    }
  } finally {
    optimizer.dispose();
    model.dispose();
  }
  const seconds = (performance.now() - began) / 1000;
  return {
    name: contender.name,
    seed,
    steps: last,
    seconds,
    parameters: model.parameterCount,
    ...score,
    curve,
  };
}

/** One line of a comparison's table: a contender over its seeds. */
export interface ComparisonRow {
  readonly name: string;
  readonly seeds: number;
  readonly nats: number;
  readonly natsSpread: number;
  readonly accuracy: number;
  readonly accuracySpread: number;
  readonly steps: number;
  readonly seconds: number;
  readonly parameters: number;
}

/** Means over seeds, and the spread between the best and the worst of them. */
export function summarize(runs: readonly ComparisonRun[]): ComparisonRow[] {
  return [...new Set(runs.map((run) => run.name))].map((name) => {
    const own = runs.filter((run) => run.name === name);
    const all = (pick: (run: ComparisonRun) => number): number[] => own.map(pick);
    const mean = (values: readonly number[]): number =>
      values.reduce((sum, value) => sum + value, 0) / values.length;
    const spread = (values: readonly number[]): number => Math.max(...values) - Math.min(...values);
    const [nats, accuracy] = [all((run) => run.nats), all((run) => run.accuracy)];
    return {
      ...{ name, seeds: own.length, nats: mean(nats), natsSpread: spread(nats) },
      ...{ accuracy: mean(accuracy), accuracySpread: spread(accuracy), steps: mean(all((run) => run.steps)) },
      ...{ seconds: mean(all((run) => run.seconds)), parameters: own[0]!.parameters },
    };
  });
}
