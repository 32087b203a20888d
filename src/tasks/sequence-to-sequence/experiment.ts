import { ConfigError, FormatError } from "../../errors.ts";
import type { DecoderConfig, MixerChoice } from "../../models/config.ts";
import { SequenceToSequence } from "../../models/sequence-to-sequence.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { bytes } from "../../text/bytes.ts";
import { readText } from "../../text/corpus.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import type { Experiment, ExperimentPreset } from "../comparison/experiment-entry.ts";
import { type Budget, compareEntrants, type Entrant } from "../comparison/trials.ts";
import {
  type Frame,
  type IdPair,
  type PairBatch,
  pairBatch,
  scorePairs,
  sequenceToSequence,
} from "./index.ts";

/** The mixers of one contender: of the encoder, of the decoder, and between them. */
interface Mixers {
  readonly encoder: MixerChoice;
  readonly decoder: MixerChoice;
  readonly cross: MixerChoice;
}

/** A setting of the comparison. */
interface PairsPreset extends ExperimentPreset, Budget {
  readonly batch: number;
  /** Symbols of a sequence at most, where there is no file. */
  readonly longest: number;
  readonly symbols: number;
  /** Pairs that are scored and not trained on. */
  readonly evaluationPairs: number;
  readonly contenders: readonly ({ readonly name: string } & Mixers)[];
  readonly model: Omit<DecoderConfig, "vocabularySize" | "pattern">;
}

const common = {
  ...{ weightDecay: 0.01, clip: 1, stopAt: 0.999, rule: () => adamW() },
  schedule: (steps: number) => cosineSchedule({ steps, warmup: Math.ceil(steps / 20) }),
  contenders: [
    { name: "softmax", encoder: "softmax", decoder: "softmax", cross: "softmax" },
    { name: "delta", encoder: "softmax", decoder: "gated-delta", cross: "softmax" },
    { name: "linear", encoder: "linear", decoder: "linear", cross: "linear" },
  ],
};

const presets: Readonly<Record<string, PairsPreset>> = {
  quick: {
    ...common,
    description: "words of up to 16 of 12 symbols turned round, 2 + 2 layers of width 64",
    ...{ batch: 64, longest: 16, symbols: 12, evaluationPairs: 256 },
    ...{ steps: 600, learningRate: 2e-3, evaluateEvery: 50 },
    model: { width: 64, layers: 2, heads: 4, positions: { kind: "sinusoidal" } },
  },
  paper: {
    ...common,
    description: "words of up to 64 of 26 symbols turned round, 6 + 6 layers of width 512",
    ...{ batch: 64, longest: 64, symbols: 26, evaluationPairs: 1024 },
    ...{ steps: 20_000, learningRate: 5e-4, evaluateEvery: 500 },
    model: { width: 512, layers: 6, heads: 8, positions: { kind: "sinusoidal" } },
  },
};

/** Pairs to learn from and pairs to be scored on. */
interface PairSource {
  readonly frame: Frame;
  readonly vocabularySize: number;
  readonly heldOut: readonly IdPair[];
  draw(random: Random): IdPair;
}

/** Sequences turned into others by an encoder and a decoder. */
export const pairsExperiment: Experiment = {
  id: "reverse",
  title: "Turning sequences round",
  figure: "accuracy",
  data: { what: "file of SOURCE<tab>TARGET lines instead of words turned round", isRequired: false },
  presets,
  async *run(name, device, { path, say = () => {}, ...options }) {
    const preset = presets[name]!;
    const source = path === undefined ? reversed(preset) : await pairsOf(path, preset.evaluationPairs);
    const { frame, vocabularySize } = source;
    if (path !== undefined) say(`pairs of ${path}, ${source.heldOut.length} held out`);
    const { batch } = preset;
    const evaluation = Array.from({ length: Math.ceil(source.heldOut.length / batch) }, (_, i) =>
      pairBatch(source.heldOut.slice(i * batch, (i + 1) * batch), frame),
    );
    const entrants = preset.contenders.map(
      ({ name: contender, encoder, decoder, cross }): Entrant<PairBatch> => ({
        name: contender,
        make: (seed) => {
          const half = { ...preset.model, vocabularySize };
          const model = new SequenceToSequence({
            encoder: { ...half, pattern: [encoder] },
            decoder: { ...half, pattern: [decoder], cross },
          });
          initialize(model, device, new Random(seed, "init"));
          return {
            task: sequenceToSequence(model, device),
            batches: (index) => {
              const random = new Random(seed, `pairs ${index}`);
              return pairBatch(
                Array.from({ length: batch }, () => source.draw(random)),
                frame,
              );
            },
            score: () => scorePairs(model, device, evaluation),
          };
        },
      }),
    );
    yield* compareEntrants(entrants, preset, device, options);
  },
};

/** Words of random symbols and the same backwards. */
function reversed({ longest, symbols, evaluationPairs }: PairsPreset): PairSource {
  const draw = (random: Random): IdPair => {
    const [length] = random.integers(new Int32Array(1), 1, longest + 1);
    const source = random.integers(new Int32Array(length!), 2, 2 + symbols);
    return { source, target: Int32Array.from(source).reverse() };
  };
  const held = new Random(977, "held-out pairs");
  return {
    ...{ frame: { begin: 0, end: 1 }, vocabularySize: 2 + symbols, draw },
    heldOut: Array.from({ length: evaluationPairs }, () => draw(held)),
  };
}

/** Longest side of a pair in bytes. */
const longestSide = 512;

/** Pairs of a file, a line each, as bytes. */
async function pairsOf(path: string, evaluationPairs: number): Promise<PairSource> {
  const tokenizer = bytes();
  const lines = (await readText(path)).split("\n").filter((line) => line.trim() !== "");
  const pairs = lines.map((line, i): IdPair => {
    const [source, target, ...more] = line.split("\t");
    if (source === undefined || source === "" || target === undefined || more.length > 0)
      throw new FormatError(`[reverse] line ${i + 1} of ${path} is no pair: expected SOURCE<tab>TARGET`);
    return {
      source: tokenizer.encode(source).subarray(0, longestSide),
      target: tokenizer.encode(target).subarray(0, longestSide),
    };
  });
  if (pairs.length < 2)
    throw new ConfigError(
      `[reverse] pairs to learn from and to be scored on: expected two or more, got ${pairs.length}`,
    );
  const order = new Random(977, "held-out pairs").permutation(pairs.length);
  const held = Math.min(evaluationPairs, Math.ceil(pairs.length / 5));
  const at = (rank: number): IdPair => pairs[order[rank]!]!;
  const { vocabularySize } = tokenizer;
  return {
    frame: { begin: vocabularySize, end: vocabularySize + 1 },
    vocabularySize: vocabularySize + 2,
    heldOut: Array.from({ length: held }, (_, rank) => at(rank)),
    draw: (random) => at(random.integers(new Int32Array(1), held, pairs.length)[0]!),
  };
}
