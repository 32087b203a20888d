import { ConfigError } from "../../errors.ts";
import type { DecoderConfig, MixerChoice } from "../../models/config.ts";
import type { Random } from "../../tensor/random.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import type { Comparison, ComparisonPreset, Contender } from "../comparison/experiment.ts";
import type { SequenceMaker } from "../comparison/sequences.ts";

/** Settings of the generator. */
export interface RecallOptions {
  readonly vocabularySize: number;
  readonly pairs: number;
  /** Exponent of the distance between a pair and its query: small ones put queries close behind; 0.01 in Zoology. */
  readonly power?: number;
  /** Tokens between queries are random; zeros otherwise. */
  readonly randomFill?: boolean;
}

/**
 * Multi-query associative recall: key-value pairs, then every key again at a later place, where its value is asked
 * (Zoology, arXiv 2312.04927v1, definition 4.1 and appendix E; gaps follow p_i ∝ a·i^(a−1)).
 *
 * Keys come from [1, V/2), values from [V/2, V), both without repetition in a row. Queries stand at even distances
 * behind the pairs, at different ones in one row.
 *
 * @throws ConfigError when the row cannot hold the pairs and their queries.
 */
export function makeRecall(options: RecallOptions): SequenceMaker {
  const { vocabularySize, pairs, power = 0.01, randomFill = true } = options;
  return (inputs, targets, random) => {
    const context = 2 * pairs;
    const places = Math.floor((inputs.length - context) / 2);
    const half = Math.floor(vocabularySize / 2);
    if (places < pairs || half - 1 < pairs) {
      throw new ConfigError(
        `[mqar] a row holds pairs and queries: expected at least ${4 * pairs} tokens and ${2 * (pairs + 1)} ids, got ${inputs.length} and ${vocabularySize}`,
      );
    }
    const keys = random.choice(half - 1, pairs).map((key) => key + 1);
    const values = random.choice(vocabularySize - half, pairs).map((value) => value + half);
    if (randomFill) random.integers(inputs, 0, vocabularySize);
    else inputs.fill(0);
    for (let i = 0; i < pairs; i++) {
      inputs[2 * i] = keys[i]!;
      inputs[2 * i + 1] = values[i]!;
    }
    const gaps = weightedChoice(places, pairs, (i) => power * (i + 1) ** (power - 1), random);
    for (let i = 0; i < pairs; i++) {
      const at = context + 2 * gaps[i]!;
      inputs[at] = keys[i]!;
      targets[at] = values[i]!;
    }
  };
}

/** `count` different places, each next one drawn by weight among those left. */
function weightedChoice(
  places: number,
  count: number,
  weight: (i: number) => number,
  random: Random,
): number[] {
  const weights = Array.from({ length: places }, (_, i) => weight(i));
  const chosen: number[] = [];
  for (let n = 0; n < count; n++) {
    let left = random.next() * weights.reduce((sum, value) => sum + value, 0);
    let at = 0;
    // Rounding may leave a little at the end: the last place that is free takes it.
    for (let i = 0; i < places && left >= 0; i++) {
      if (weights[i] === 0) continue;
      at = i;
      left -= weights[i]!;
    }
    chosen.push(at);
    weights[at] = 0;
  }
  return chosen;
}

type Size = Omit<DecoderConfig, "vocabularySize" | "pattern">;

function contenders(
  vocabularySize: number,
  size: Size,
  choices: Readonly<Record<string, MixerChoice>>,
): Contender[] {
  return Object.entries(choices).map(([name, mixer]) => ({
    name,
    model: { vocabularySize, pattern: [mixer], ...size },
  }));
}

const common = {
  ...{ weightDecay: 0.1, clip: 1, rule: () => adamW(), stopAt: 0.99 },
  schedule: (steps: number) => cosineSchedule({ steps, warmup: Math.ceil(steps / 50) }),
} satisfies Partial<ComparisonPreset>;

const mixers: Readonly<Record<string, MixerChoice>> = {
  softmax: "softmax",
  delta: { id: "delta" },
  "gated-delta": { id: "gated-delta" },
  gla: "gla",
  linear: { id: "linear" },
};

/** Multi-query associative recall. */
export const mqar: Comparison = {
  id: "mqar",
  title: "Recalling the values of keys",
  figure: "accuracy",
  presets: {
    quick: {
      ...common,
      description: "vocabulary 128, 8 pairs in 64 tokens, 2 layers of width 64, state of 2 heads × 16 × 16",
      ...{ time: 64, batch: 64, steps: 600, learningRate: 1e-2, evaluateEvery: 50, evaluationRows: 256 },
      rule: () => muon(),
      maker: makeRecall({ vocabularySize: 128, pairs: 8 }),
      contenders: contenders(
        128,
        {
          ...{
            width: 64,
            layers: 2,
            heads: 2,
            feedForward: { kind: "none" },
            positions: { kind: "sinusoidal" },
            initDeviation: 0.5,
          },
          mixer: { keyWidth: 16, valueWidth: 16 },
        },
        { softmax: "softmax", delta: "delta", linear: "linear" },
      ),
    },
    paper: {
      ...common,
      description:
        "Zoology's figure 2: vocabulary 8192, 4 pairs in 64 tokens, 2 layers of width 64, no feed-forward",
      ...{
        time: 64,
        batch: 512,
        steps: 12_500,
        learningRate: 3e-3,
        evaluateEvery: 200,
        evaluationRows: 3000,
      },
      maker: makeRecall({ vocabularySize: 8192, pairs: 4, randomFill: false }),
      contenders: contenders(
        8192,
        {
          width: 64,
          layers: 2,
          heads: 1,
          feedForward: { kind: "none" },
          positions: { kind: "learned", length: 64 },
        },
        mixers,
      ),
    },
  },
};
