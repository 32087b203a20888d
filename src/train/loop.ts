import { scope } from "../autograd/scope.ts";
import { backward, noGrad } from "../autograd/tape.ts";
import type { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { Turns } from "../device/turn.ts";
import { NumericsError } from "../errors.ts";
import type { Module } from "../nn/module.ts";
import { Random } from "../tensor/random.ts";
import type { WeightAverage } from "./average.ts";
import type { Optimizer } from "./optimizers/optimizer.ts";
import { constantSchedule, type Schedule } from "./schedules.ts";

/** What is trained: a module and the loss of a batch. */
export interface Task<Batch> {
  readonly module: Module;
  /** The mean loss of a batch as one number on the device. */
  loss(batch: Batch, context: { readonly training: boolean; readonly random: Random }): Tensor;
  /** Tokens, pixels or examples of a batch, for rates. */
  size(batch: Batch): number;
  /** State that one step leaves for the next; a run keeps it. */
  readonly carried?: Readonly<Record<string, Tensor>>;
  /** Forgets what is carried: called after a step that was not finite. */
  reset?(): void;
}

/** How long and how. */
export interface TrainOptions<Batch> {
  readonly device: Device;
  /** The batch of micro-step 0, 1, 2, …: a function of the number alone, so that a resumed run sees the same. */
  readonly batches: (index: number) => Batch;
  readonly optimizer: Optimizer;
  readonly schedule?: Schedule;
  /** Optimizer steps in all, those before a resume included; training also ends by `signal` or `seconds`. */
  readonly steps: number;
  /** The first step to do, 1 unless resumed. */
  readonly from?: number;
  /** Ends training after so much time, `elapsed` included. */
  readonly seconds?: number;
  /** Seconds of training before a resume. */
  readonly elapsed?: number;
  /** Batches whose gradients are averaged into one step. */
  readonly accumulate?: number;
  readonly seed?: number;
  readonly signal?: AbortSignal;
  /** Every so many steps `evaluate` runs and its number comes with the step. */
  readonly evaluateEvery?: number;
  readonly evaluate?: () => Promise<number> | number;
  /** Ends training when this many evaluations in a row were no better than the best. */
  readonly patience?: number;
  /** Follows the weights; evaluations see it in their place. */
  readonly average?: WeightAverage;
}

/** One step as it is reported. */
export interface TrainStep {
  readonly step: number;
  /** Mean over the accumulated batches, in nats. */
  readonly loss: number;
  readonly learningRate: number;
  readonly gradientNorm: number;
  /** True when loss or gradients were not finite and nothing moved. */
  readonly skipped: boolean;
  /** Steps skipped so far. */
  readonly skips: number;
  readonly size: number;
  /** Seconds of training, those before a resume included. */
  readonly seconds: number;
  readonly evaluation?: number;
  /** The last step of the run, and why it is the last. */
  readonly end?: "steps" | "seconds" | "patience";
}

const mostSkips = 50;

/**
 * Trains step by step: `for await (const step of train(task, options))`.
 *
 * Every step runs in a scope of its own, so memory does not grow with steps. Leaving the loop ends the work. Steps
 * whose loss or gradients are not finite move nothing; they are counted and reported.
 *
 * @throws NumericsError after 50 such steps in a row; the signal's reason when it aborts.
 * @example
 * for await (const { step, loss } of train(task, { device, batches, optimizer, steps: 100 })) console.log(step, loss);
 */
export async function* train<Batch>(
  task: Task<Batch>,
  options: TrainOptions<Batch>,
): AsyncGenerator<TrainStep> {
  const { optimizer, schedule = constantSchedule(), steps, accumulate = 1, signal, average } = options;
  const rate = optimizer.options.learningRate;
  const began = performance.now();
  const clock = (): number => (options.elapsed ?? 0) + (performance.now() - began) / 1000;
  const patience = new Patience(options.patience);
  // A step awaits nothing that lets a signal or a timer in between.
  const turns = new Turns();
  let skips = 0;
  let inARow = 0;
  for (let step = options.from ?? 1; step <= steps; step++) {
    await turns.pass();
    signal?.throwIfAborted();
    const learningRate = rate * schedule(step, clock());
    const { loss, size } = await gradientsOf(task, options, step, accumulate);
    const report = Number.isFinite(loss)
      ? await optimizer.step(learningRate, 1 / accumulate)
      : { gradientNorm: Number.NaN, sound: false };
    optimizer.clearGradients();
    if (report.sound) average?.update();
    else {
      skips++;
      task.reset?.();
    }
    inARow = report.sound ? 0 : inARow + 1;
    if (inARow >= mostSkips) {
      throw new NumericsError(
        `[train] ${mostSkips} steps in a row gave a loss or gradients that are not finite`,
        "Lower the learning rate, clip the gradients, or look for NaN in the data.",
      );
    }
    const due = options.evaluate !== undefined && step % (options.evaluateEvery ?? steps) === 0;
    const evaluation = due ? await evaluated(options.evaluate!, average) : undefined;
    const seconds = clock();
    const end = endOf(step, steps, seconds, options.seconds, patience.isOver(evaluation));
    const { gradientNorm, sound } = report;
    const base = { step, loss, learningRate, gradientNorm, skipped: !sound, skips, size, seconds };
    yield {
      ...base,
      ...(evaluation === undefined ? {} : { evaluation }),
      ...(end === undefined ? {} : { end }),
    };
    if (end !== undefined) return;
  }
}

async function evaluated(
  evaluation: () => Promise<number> | number,
  average: WeightAverage | undefined,
): Promise<number> {
  return average === undefined ? evaluation() : average.use(async () => evaluation());
}

/** Leaves the summed gradients of the accumulated batches at the parameters. */
async function gradientsOf<Batch>(
  task: Task<Batch>,
  options: TrainOptions<Batch>,
  step: number,
  accumulate: number,
): Promise<{ readonly loss: number; readonly size: number }> {
  let total = 0;
  let size = 0;
  for (let i = 0; i < accumulate; i++) {
    const index = (step - 1) * accumulate + i;
    const batch = options.batches(index);
    size += task.size(batch);
    const random = new Random(options.seed ?? 0, `step ${index}`);
    const loss = scope(options.device, () => {
      const value = task.loss(batch, { training: true, random });
      backward(value);
      return value.detach();
    });
    total += await loss.item();
    loss.dispose();
  }
  return { loss: total / accumulate, size };
}

/** The mean loss over batches, weighted by their size, without gradients. */
export async function evaluate<Batch>(
  task: Task<Batch>,
  device: Device,
  batches: Iterable<Batch>,
): Promise<number> {
  let total = 0;
  let size = 0;
  const turns = new Turns();
  for (const batch of batches) {
    await turns.pass();
    const loss = scope(device, () =>
      noGrad(() => task.loss(batch, { training: false, random: new Random(0) })),
    );
    total += (await loss.item()) * task.size(batch);
    size += task.size(batch);
    loss.dispose();
  }
  return size === 0 ? Number.NaN : total / size;
}

function endOf(
  step: number,
  steps: number,
  seconds: number,
  limit: number | undefined,
  outOfPatience: boolean,
): TrainStep["end"] {
  if (step >= steps) return "steps";
  if (limit !== undefined && seconds >= limit) return "seconds";
  return outOfPatience ? "patience" : undefined;
}

/** Counts evaluations that were no better than the best. */
class Patience {
  private best = Number.POSITIVE_INFINITY;
  private worse = 0;
  private readonly limit: number | undefined;

  constructor(limit: number | undefined) {
    this.limit = limit;
  }

  isOver(evaluation: number | undefined): boolean {
    if (evaluation === undefined || this.limit === undefined) return false;
    this.worse = evaluation < this.best ? 0 : this.worse + 1;
    this.best = Math.min(this.best, evaluation);
    return this.worse >= this.limit;
  }
}
