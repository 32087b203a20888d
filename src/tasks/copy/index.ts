import type { DecoderConfig, MixerChoice } from "../../models/config.ts";
import { rAdam } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import { cosineSchedule, stepSchedule } from "../../train/schedules.ts";
import type { Comparison, ComparisonPreset, Contender } from "../comparison/experiment.ts";
import type { SequenceMaker } from "../comparison/sequences.ts";

const symbols = 10;
/** Id of the mark before each copy; symbols are 1 … 10. */
const mark = 0;

/**
 * A word of random symbols twice, each with a mark before it; the second copy is asked
 * (Transformers are RNNs, arXiv 2006.16236v3, section 4.1).
 *
 * A row of T tokens holds words of T/2 − 1 to T/2 symbols; what is left of it stays unasked.
 */
export const makeCopy: SequenceMaker = (inputs, targets, random) => {
  const longest = Math.floor(inputs.length / 2);
  const [length] = random.integers(new Int32Array(1), Math.max(1, longest - 8), longest);
  const word = random.integers(new Int32Array(length!), 1, symbols + 1);
  const row = [mark, ...word, mark, ...word];
  for (let t = 0; t < inputs.length; t++) {
    inputs[t] = row[t] ?? mark;
    const next = row[t + 1];
    if (next !== undefined && t + 1 > length! + 1) targets[t] = next;
  }
};

function contender(
  name: string,
  mixer: MixerChoice,
  size: Omit<DecoderConfig, "vocabularySize" | "pattern">,
): Contender {
  return { name, model: { vocabularySize: symbols + 1, pattern: [mixer], ...size } };
}

/** @param group Tokens of a group of hashing, of which a row holds several: it would be exact attention otherwise. */
function contenders(size: Omit<DecoderConfig, "vocabularySize" | "pattern">, group: number): Contender[] {
  return [
    contender("linear", { id: "linear", featureMap: "elu+1" }, size),
    contender("softmax", "softmax", size),
    contender("lsh", { id: "lsh", rounds: 1, group }, size),
  ];
}

const common = {
  ...{ weightDecay: 0, maker: makeCopy, rule: () => rAdam() },
  schedule: () => stepSchedule({ every: 3000, factor: 0.1 }),
} satisfies Partial<ComparisonPreset>;

/** Sequence duplication. */
export const copy: Comparison = {
  id: "copy",
  title: "Copying a word of random symbols",
  figure: "nats",
  presets: {
    quick: {
      ...common,
      description: "words of up to 31 symbols, 2 layers × 4 heads of 16",
      ...{
        time: 64,
        batch: 32,
        steps: 800,
        learningRate: 2e-2,
        clip: 1,
        evaluateEvery: 50,
        evaluationRows: 64,
      },
      rule: () => muon(),
      schedule: (steps) => cosineSchedule({ steps, warmup: 20, floor: 0.02 }),
      contenders: contenders(
        {
          ...{ width: 64, layers: 2, heads: 4, norm: "layer", positions: { kind: "learned", length: 64 } },
          feedForward: { kind: "plain", width: 256 },
        },
        16,
      ),
    },
    paper: {
      ...common,
      description:
        "words of up to 127 symbols, 4 layers × 8 heads, as the paper has it (its width is not given: 256)",
      ...{ time: 256, batch: 64, steps: 10_000, learningRate: 1e-3, evaluateEvery: 200, evaluationRows: 128 },
      contenders: contenders(
        {
          ...{ width: 256, layers: 4, heads: 8, norm: "layer", positions: { kind: "learned", length: 256 } },
          feedForward: { kind: "plain", width: 1024 },
        },
        32,
      ),
    },
  },
};
