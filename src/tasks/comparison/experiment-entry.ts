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
  /** The folder of a trained model within the experiment's, where models are kept. */
  keptAs?(run: Pick<ComparisonRun, "name" | "seed">, seeds: number): string;
  /** Trains every contender with every seed. */
  run(preset: string, device: Device, options: ExperimentOptions): AsyncGenerator<ComparisonRun>;
}

/** Which contenders, on what, and where it is kept. */
export interface ExperimentOptions extends CompareOptions {
  /** Where its data lie. */
  readonly path?: string;
  /** Where an experiment whose models are of use afterwards keeps them, each in a folder of its own. */
  readonly folder?: string;
  readonly say?: (line: string) => void;
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
