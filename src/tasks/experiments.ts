import * as comparisons from "./all.ts";
import { classificationExperiment } from "./classification/experiment.ts";
import type { Comparison } from "./comparison/experiment.ts";
import { type Experiment, experimentOf } from "./comparison/experiment-entry.ts";
import { maskedExperiment } from "./masked-tokens/experiment.ts";
import { pairsExperiment } from "./sequence-to-sequence/experiment.ts";

/** Every experiment, those on made sequences first. */
export const experiments: readonly Experiment[] = [
  ...Object.values(comparisons as Record<string, Comparison>).map(experimentOf),
  pairsExperiment,
  maskedExperiment,
  classificationExperiment,
];
