import type { DecoderConfig, MixerChoice } from "../../models/config.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import type { Comparison, ComparisonPreset, Contender } from "../comparison/experiment.ts";
import type { SequenceMaker } from "../comparison/sequences.ts";

const vocabulary = 20;
/** Id of the token whose follower is asked when it comes again; the others are 1 … 19. */
const trigger = 0;

/**
 * Random tokens with one pair (trigger, x) somewhere and the trigger again at the end, where x is asked
 * (induction heads: arXiv 2209.11895v1; the setting of H3, arXiv 2212.14052v3, table 1).
 */
export const makeInduction: SequenceMaker = (inputs, targets, random) => {
  random.integers(inputs, 1, vocabulary);
  const last = inputs.length - 1;
  const [at] = random.integers(new Int32Array(1), 0, last - 1);
  inputs[at!] = trigger;
  inputs[last] = trigger;
  targets[last] = inputs[at! + 1]!;
};

function contenders(size: Omit<DecoderConfig, "vocabularySize" | "pattern">): Contender[] {
  const mixers: Readonly<Record<string, MixerChoice>> = {
    softmax: "softmax",
    "gated-delta": "gated-delta",
    mamba2: "mamba2",
    linear: "linear",
  };
  return Object.entries(mixers).map(([name, mixer]) => ({
    name,
    model: { vocabularySize: vocabulary, pattern: [mixer], ...size },
  }));
}

const common = {
  ...{ weightDecay: 0.1, clip: 1, maker: makeInduction, rule: () => adamW(), stopAt: 0.99 },
  schedule: (steps: number) => cosineSchedule({ steps, warmup: Math.ceil(steps / 50) }),
} satisfies Partial<ComparisonPreset>;

/** The two-token pattern completed. */
export const induction: Comparison = {
  id: "induction",
  title: "Completing a pattern of two tokens",
  figure: "accuracy",
  presets: {
    quick: {
      ...common,
      description: "20 symbols, rows of 32, 2 layers of width 32",
      ...{ time: 32, batch: 64, steps: 1000, learningRate: 1e-2, evaluateEvery: 50, evaluationRows: 512 },
      rule: () => muon(),
      contenders: contenders({
        ...{
          width: 32,
          layers: 2,
          heads: 2,
          feedForward: { kind: "none" },
          positions: { kind: "sinusoidal" },
          initDeviation: 0.5,
        },
      }),
    },
    paper: {
      ...common,
      description: "20 symbols, rows of 256, 2 layers of width 64",
      ...{ time: 256, batch: 32, steps: 10_000, learningRate: 1e-3, evaluateEvery: 250, evaluationRows: 512 },
      contenders: contenders({
        ...{
          width: 64,
          layers: 2,
          heads: 2,
          feedForward: { kind: "none" },
          positions: { kind: "learned", length: 256 },
        },
      }),
    },
  },
};
