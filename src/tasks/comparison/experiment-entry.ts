/** What the command line and the pages know of an experiment, whatever it compares. */
import type { Device } from "../../device/device.ts";
import { type Comparison, compare } from "./experiment.ts";
import type { SequenceScore } from "./score.ts";
import type { CompareOptions, ComparisonRun } from "./trials.ts";

/** Several contenders on one task under one budget. */
export interface Experiment {
  readonly id: string;
  readonly title: string;
  /** The figure that its plot shows. */
  readonly figure: keyof SequenceScore;
  /** What it reads; absent where it makes its own data. */
  readonly data?: { readonly what: string; readonly isRequired: boolean };
  readonly presets: Readonly<Record<string, ExperimentPreset>>;
  /** Trains every contender with every seed. @param path Where its data lie. */
  run(
    preset: string,
    device: Device,
    options: CompareOptions & { readonly path?: string; readonly say?: (line: string) => void },
  ): AsyncGenerator<ComparisonRun>;
}

/** What is said of a preset before it runs. */
export interface ExperimentPreset {
  readonly description: string;
  readonly contenders: readonly { readonly name: string }[];
}

/** A comparison on made sequences as an experiment. */
export function experimentOf(comparison: Comparison): Experiment {
  return {
    ...comparison,
    run: (preset, device, options) => compare(comparison.presets[preset]!, device, options),
  };
}
