import type { Device } from "../../device/device.ts";
import type { DecoderConfig } from "../../models/config.ts";
import { Decoder } from "../../models/decoder.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import type { SequenceScore } from "./score.ts";
import { makeSequences, type SequenceMaker, scoreSequences, sequenceTask } from "./sequences.ts";
import { type Budget, type CompareOptions, type ComparisonRun, compareEntrants } from "./trials.ts";

/** One contender: a name and its model. */
export interface Contender {
  readonly name: string;
  readonly model: DecoderConfig;
  /** Its own largest learning rate, where the one of the preset does not fit it. */
  readonly learningRate?: number;
}

/** A setting in which contenders meet under one budget. */
export interface ComparisonPreset extends Budget {
  readonly description: string;
  readonly time: number;
  readonly batch: number;
  readonly maker: SequenceMaker;
  /** Rows scored at each evaluation; drawn once, never trained on. */
  readonly evaluationRows: number;
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

/** Trains every contender with every seed, one after another, and scores all on the same rows. */
export function compare(
  preset: ComparisonPreset,
  device: Device,
  options: CompareOptions,
): AsyncGenerator<ComparisonRun> {
  const { batch, time, maker, evaluationRows } = preset;
  const held = new Random(977, "held-out rows");
  const rows = Math.min(batch, evaluationRows);
  const evaluation = Array.from({ length: Math.ceil(evaluationRows / rows) }, () =>
    makeSequences(maker, rows, time, held),
  );
  const entrants = preset.contenders.map(({ model: config, ...contender }) => ({
    ...contender,
    make: (seed: number) => {
      const model = new Decoder(config);
      initialize(model, device, new Random(seed, "init"));
      return {
        task: sequenceTask(model, device),
        batches: (index: number) => makeSequences(maker, batch, time, new Random(seed, `rows ${index}`)),
        score: () => scoreSequences(model, device, evaluation),
      };
    },
  }));
  return compareEntrants(entrants, preset, device, options);
}
