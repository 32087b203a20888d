import { Classifier, type ClassifierConfig } from "../../models/classifier.ts";
import type { EncoderConfig, MixerChoice } from "../../models/config.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { bytePair } from "../../text/byte-pair.ts";
import { trainBytePair } from "../../text/byte-pair-train.ts";
import { holdOut, readLabelled } from "../../text/labelled.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import type { Experiment, ExperimentPreset } from "../comparison/experiment-entry.ts";
import { type Budget, compareEntrants, type Entrant } from "../comparison/trials.ts";
import {
  classification,
  evaluationTexts,
  type LabelledBatch,
  labelledBatches,
  scoreClassifier,
} from "./index.ts";
import { type ClassificationRunConfig, idsOf } from "./text-classifier.ts";

/** A setting of the comparison. */
interface ClassificationPreset extends ExperimentPreset, Budget {
  readonly time: number;
  readonly batch: number;
  /** Ids of the byte-pair tokenizer that is trained on the texts. */
  readonly vocabularySize: number;
  /** Share of every label's texts that is scored and not trained on. */
  readonly heldOut: number;
  readonly contenders: readonly { readonly name: string; readonly mixer: MixerChoice }[];
  readonly model: Omit<EncoderConfig, "vocabularySize" | "pattern">;
}

const mixers: Readonly<Record<string, MixerChoice>> = {
  softmax: "softmax",
  linear: "linear",
  performer: "performer",
  nystrom: "nystrom",
};

const common = {
  ...{ weightDecay: 0.1, clip: 1, heldOut: 0.2, rule: () => adamW() },
  schedule: (steps: number) => cosineSchedule({ steps, warmup: Math.ceil(steps / 20) }),
  contenders: Object.entries(mixers).map(([name, mixer]) => ({ name, mixer })),
};

const presets: Readonly<Record<string, ClassificationPreset>> = {
  quick: {
    ...common,
    description: "the first 512 tokens of each text, 2 layers of width 64, a fifth of each label held out",
    ...{ time: 512, batch: 16, steps: 150, learningRate: 2e-3, evaluateEvery: 50, vocabularySize: 1024 },
    model: { width: 64, layers: 2, heads: 4, positions: { kind: "sinusoidal" }, dropout: 0.1 },
  },
  paper: {
    ...common,
    description:
      "the first 4,096 tokens of each text, 4 layers of width 256 (the sizes of Long Range Arena's text task)",
    ...{ time: 4096, batch: 16, steps: 5000, learningRate: 5e-4, evaluateEvery: 250, vocabularySize: 4096 },
    model: { width: 256, layers: 4, heads: 4, positions: { kind: "sinusoidal" }, dropout: 0.1 },
  },
};

/** Characters that the tokenizer is trained on at most: more changes its merges little. */
const tokenizerCharacters = 4_000_000;

/** Long texts labelled by an encoder: a folder whose sub-folders are labels. */
export const classificationExperiment: Experiment = {
  id: "classification",
  title: "Labelling long texts",
  figure: "accuracy",
  data: { what: "folder whose sub-folders are labels", isRequired: true },
  presets,
  keptAs,
  async *run(name, device, { path, folder, say = () => {}, ...options }) {
    const preset = presets[name]!;
    const { labels, texts } = await readLabelled(path!);
    const { train, heldOut } = holdOut(texts, preset.heldOut, new Random(977, "held-out texts"));
    const counts = labels.map((label, i) => `${label} ${texts.filter((text) => text.label === i).length}`);
    say(`${texts.length} texts (${counts.join(", ")}), ${heldOut.length} of them held out`);
    const largest = labels.map((_, i) => heldOut.filter(({ label }) => label === i).length);
    say(`always the same label would be right for ${percent(Math.max(...largest) / heldOut.length)}`);
    const tokenizer = bytePair(trainBytePair(beginnings(train), preset.vocabularySize));
    const { time, batch } = preset;
    const encoded = (part: typeof texts) =>
      part.map(({ text, label }) => ({ ids: idsOf(text, tokenizer, time), label }));
    const learned = encoded(train);
    const evaluation = evaluationTexts(encoded(heldOut), { batch, time });
    const entrants = preset.contenders.map(
      ({ name: contender, mixer }): Entrant<LabelledBatch> => ({
        name: contender,
        make: async (seed) => {
          const config = modelConfig(preset, mixer, tokenizer.vocabularySize, labels.length);
          const model = new Classifier(config);
          const own = keptAs({ name: contender, seed }, options.seeds.length);
          const run =
            folder === undefined
              ? undefined
              : await RunFolder.create(`${folder}/${own}`, {
                  ...{
                    format: "linnet-run",
                    version: 1,
                    task: "classification",
                    model: config,
                    labels,
                    time,
                  },
                  ...{ tokenizer: tokenizer.toJSON(), text: path!, training: { preset: name, seed } },
                } satisfies ClassificationRunConfig);
          initialize(model, device, new Random(seed, "init"));
          return {
            task: classification(model, device),
            batches: labelledBatches(learned, { batch, time }, new Random(seed)),
            score: () => scoreClassifier(model, device, evaluation),
            ...(run && { keep: (metrics) => keep(run, model, metrics) }),
          };
        },
      }),
    );
    yield* compareEntrants(entrants, preset, device, options);
  },
};

function keptAs({ name, seed }: { readonly name: string; readonly seed: number }, seeds: number): string {
  return seeds > 1 ? `${name}-${seed}` : name;
}

async function keep(run: RunFolder, model: Classifier, metrics: readonly object[]): Promise<void> {
  await run.log(metrics);
  await run.saveModel(model, metrics.length);
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

/** Texts up to a limit in all, from the beginning of each, so that every label has its part. */
function beginnings(texts: readonly { readonly text: string }[]): string[] {
  const each = Math.ceil(tokenizerCharacters / texts.length);
  return texts.map(({ text }) => text.slice(0, each));
}

function modelConfig(
  preset: ClassificationPreset,
  mixer: MixerChoice,
  vocabularySize: number,
  classes: number,
): ClassifierConfig {
  return { ...preset.model, vocabularySize, pattern: [mixer], classes };
}
