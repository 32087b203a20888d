import { ConfigError } from "../../errors.ts";
import { adam, adamW, rAdam } from "../../train/optimizers/adam.ts";
import { lion } from "../../train/optimizers/lion.ts";
import { muon } from "../../train/optimizers/muon.ts";
import type { UpdateRule } from "../../train/optimizers/optimizer.ts";
import { sgd } from "../../train/optimizers/sgd.ts";
import {
  clockSchedule,
  constantSchedule,
  cosineSchedule,
  linearSchedule,
  type Schedule,
} from "../../train/schedules.ts";

const rules = {
  muon: (beta2: number) => muon({ beta2 }),
  adamw: (beta2: number) => adamW({ beta2 }),
  adam: (beta2: number) => adam({ beta2 }),
  radam: (beta2: number) => rAdam({ beta2 }),
  lion: () => lion(),
  sgd: () => sgd({ momentum: 0.9 }),
} satisfies Record<string, (beta2: number) => UpdateRule>;

/** Optimizers that a run can name. */
export const optimizerNames = Object.keys(rules) as (keyof typeof rules)[];

/** Courses of the learning rate that a run can name; `clock` is a cosine over `seconds`. */
export const scheduleNames = ["cosine", "linear", "constant", "clock"] as const;

/**
 * What a row of a batch is: a window of the whole text, the beginning of one document, or documents packed in one row
 * of batch × time tokens; of the last two no document sees another.
 */
export const documentNames = ["joined", "rows", "packed"] as const;

/** How a language model is trained, as a run keeps it. */
export interface LanguageTraining {
  readonly batch: number;
  readonly time: number;
  readonly steps: number;
  /** Ends the run by the clock; with the schedule `clock` the learning rate follows it too. */
  readonly seconds?: number;
  readonly optimizer: keyof typeof rules;
  readonly schedule: (typeof scheduleNames)[number];
  readonly learningRate: number;
  readonly warmup: number;
  readonly weightDecay: number;
  readonly clip: number;
  readonly beta2: number;
  readonly seed: number;
  readonly accumulate: number;
  readonly recompute: boolean;
  /** Rows run on from batch to batch with their state instead of beginning at random places. */
  readonly carry: boolean;
  readonly documents: (typeof documentNames)[number];
  /** Decay of the average of the weights that is published and scored; 0 for none. */
  readonly average: number;
  /** Steps between saves. */
  readonly saveEvery: number;
  /** Steps between evaluations on the held-out text; 0 for none before the end. */
  readonly evaluateEvery: number;
  /** Ends the run after so many evaluations without a better one; 0 for never. */
  readonly patience: number;
  /** Share of the text at its end that is not trained on. */
  readonly heldOut: number;
}

const usual: LanguageTraining = {
  ...{ batch: 8, time: 256, steps: 1000, optimizer: "muon", schedule: "cosine", learningRate: 4e-3 },
  ...{ warmup: 20, weightDecay: 0.1, clip: 1, beta2: 0.95, seed: 0, accumulate: 1, recompute: false },
  ...{
    carry: false,
    documents: "joined",
    average: 0,
    saveEvery: 100,
    evaluateEvery: 0,
    patience: 0,
    heldOut: 0.05,
  },
};

/** Training options of a run, with the defaults that fit a laptop. */
export function trainingOptions(given: Partial<LanguageTraining>): LanguageTraining {
  const options: LanguageTraining = { ...usual, ...given };
  for (const name of ["batch", "time", "steps", "accumulate", "saveEvery"] as const) {
    if (!Number.isInteger(options[name]) || options[name] < 1) {
      throw new ConfigError(`[train] ${name} is a whole number >= 1, got ${options[name]}`);
    }
  }
  for (const name of ["evaluateEvery", "patience"] as const) {
    if (!Number.isInteger(options[name]) || options[name] < 0) {
      throw new ConfigError(`[train] ${name} is a whole number >= 0, got ${options[name]}`);
    }
  }
  if (!(options.learningRate > 0))
    throw new ConfigError(`[train] learningRate is a number > 0, got ${options.learningRate}`);
  if (rules[options.optimizer] === undefined) {
    throw new ConfigError(
      `[train] unknown optimizer: expected one of ${optimizerNames.join(", ")}, got ${options.optimizer}`,
    );
  }
  if (!documentNames.includes(options.documents)) {
    throw new ConfigError(
      `[train] unknown way to take documents: expected one of ${documentNames.join(", ")}, got ${options.documents}`,
    );
  }
  if (options.carry && options.documents !== "joined") {
    throw new ConfigError(
      `[train] rows that run on carry their state through one text: expected documents joined, got ${options.documents}`,
    );
  }
  if (options.schedule === "clock" && options.seconds === undefined)
    throw new ConfigError(
      "[train] the schedule clock runs over seconds: expected a number of them, got none",
    );
  return options;
}

/** The update rule that the options name. */
export function ruleOf({ optimizer, beta2 }: LanguageTraining): UpdateRule {
  return rules[optimizer](beta2);
}

/** The course of the learning rate over `steps`, or over the clock. */
export function scheduleOf(training: LanguageTraining, steps: number): Schedule {
  const { schedule, seconds } = training;
  const warmup = Math.min(training.warmup, steps - 1);
  const floor = 0.1;
  if (schedule === "clock" && seconds !== undefined) return clockSchedule({ seconds, warmup, floor: 0.02 });
  if (schedule === "constant") return constantSchedule({ warmup });
  return schedule === "linear"
    ? linearSchedule({ steps, warmup, floor })
    : cosineSchedule({ steps, warmup, floor });
}
