/** Contenders of any kind under one budget: what every comparison shares. */
import type { Device } from "../../device/device.ts";
import { type Task, train } from "../../train/loop.ts";
import type { UpdateRule } from "../../train/optimizers/optimizer.ts";
import { Optimizer } from "../../train/optimizers/optimizer.ts";
import type { Schedule } from "../../train/schedules.ts";
import type { SequenceScore } from "./score.ts";

/** What every contender may spend. */
export interface Budget {
  readonly steps: number;
  readonly learningRate: number;
  readonly weightDecay: number;
  readonly clip?: number;
  readonly rule: () => UpdateRule;
  readonly schedule: (steps: number) => Schedule;
  readonly evaluateEvery: number;
  /** Ends a contender's training at this accuracy. */
  readonly stopAt?: number;
}

/** A contender made ready to be trained once: its model drawn, its batches and its score at hand. */
export interface Trial<Batch> {
  readonly task: Task<Batch>;
  readonly batches: (index: number) => Batch;
  score(): Promise<SequenceScore>;
  /** Keeps what was learned, also of training that was interrupted. @param metrics A line a step. */
  keep?(metrics: readonly object[]): Promise<void>;
}

/** A contender by name. */
export interface Entrant<Batch> {
  readonly name: string;
  /** Its own largest learning rate, where the one of the budget does not fit it. */
  readonly learningRate?: number;
  make(seed: number): Trial<Batch> | Promise<Trial<Batch>>;
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

/** Which contenders, how often, and how it is watched. */
export interface CompareOptions {
  readonly seeds: readonly number[];
  readonly only?: readonly string[];
  readonly signal?: AbortSignal;
  readonly onStep?: (progress: ComparisonProgress) => void;
}

/** Trains every entrant with every seed, one after another. */
export async function* compareEntrants<Batch>(
  entrants: readonly Entrant<Batch>[],
  budget: Budget,
  device: Device,
  options: CompareOptions,
): AsyncGenerator<ComparisonRun> {
  for (const entrant of entrants) {
    if (options.only !== undefined && !options.only.includes(entrant.name)) continue;
    for (const seed of options.seeds) yield await runOne(entrant, seed, budget, device, options);
  }
}

async function runOne<Batch>(
  { name, learningRate, make }: Entrant<Batch>,
  seed: number,
  budget: Budget,
  device: Device,
  { signal, onStep }: CompareOptions,
): Promise<ComparisonRun> {
  const { steps } = budget;
  const { task, batches, score: rate, keep } = await make(seed);
  const optimizer = new Optimizer(budget.rule(), task.module.namedParameters(), {
    learningRate: learningRate ?? budget.learningRate,
    weightDecay: budget.weightDecay,
    ...(budget.clip === undefined ? {} : { clip: budget.clip }),
  });
  const curve: { step: number; nats: number; accuracy: number }[] = [];
  let score: SequenceScore = { nats: Number.NaN, accuracy: 0 };
  const metrics: object[] = [];
  let last = 0;
  const began = performance.now();
  try {
    for await (const { step, loss, learningRate: rateNow, gradientNorm, seconds } of train(task, {
      ...{ device, optimizer, batches, steps, seed, schedule: budget.schedule(steps) },
      ...(signal === undefined ? {} : { signal }),
    })) {
      last = step;
      onStep?.({ name, seed, step, steps, loss });
      const isScored = step % budget.evaluateEvery === 0 || step === steps;
      if (isScored) score = await rate();
      metrics.push({ step, loss, learningRate: rateNow, gradientNorm, seconds, ...(isScored ? score : {}) });
      if (!isScored) continue;
      curve.push({ step, ...score });
      if (budget.stopAt !== undefined && score.accuracy >= budget.stopAt) break;
    }
  } finally {
    if (metrics.length > 0) await keep?.(metrics);
    optimizer.dispose();
    task.module.dispose();
  }
  const seconds = (performance.now() - began) / 1000;
  const parameters = task.module.parameterCount;
  return { name, seed, steps: last, seconds, parameters, ...score, curve };
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
