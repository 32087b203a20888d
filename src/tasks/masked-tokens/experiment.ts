import type { EncoderConfig, MixerChoice } from "../../models/config.ts";
import { MaskedModel } from "../../models/masked-model.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { evaluationWindows, type TokenBatch } from "../../text/batches.ts";
import { bytePair } from "../../text/byte-pair.ts";
import { trainBytePair } from "../../text/byte-pair-train.ts";
import { readText } from "../../text/corpus.ts";
import { adamW } from "../../train/optimizers/adam.ts";
import { muon } from "../../train/optimizers/muon.ts";
import { cosineSchedule } from "../../train/schedules.ts";
import type { Experiment, ExperimentPreset } from "../comparison/experiment-entry.ts";
import { type Budget, compareEntrants, type Entrant } from "../comparison/trials.ts";
import { maskedTokens, maskedWindows, maskTokens, scoreMasked } from "./index.ts";

/** A setting of the comparison. */
interface MaskedPreset extends ExperimentPreset, Budget {
  readonly time: number;
  readonly batch: number;
  readonly vocabularySize: number;
  /** Share of the text, at its end, that is scored and not trained on. */
  readonly heldOut: number;
  readonly contenders: readonly { readonly name: string; readonly mixer: MixerChoice }[];
  readonly model: Omit<EncoderConfig, "vocabularySize" | "pattern">;
}

const common = {
  ...{ weightDecay: 0.1, clip: 1, heldOut: 0.05, rule: () => adamW() },
  schedule: (steps: number) => cosineSchedule({ steps, warmup: Math.ceil(steps / 20) }),
  contenders: ["softmax", "linear", "performer", "nystrom"].map((name) => ({ name, mixer: name })),
};

const presets: Readonly<Record<string, MaskedPreset>> = {
  quick: {
    ...common,
    description: "windows of 128 tokens, 15 % of them hidden, 2 layers of width 128",
    ...{ time: 128, batch: 16, steps: 400, learningRate: 1e-2, evaluateEvery: 50, vocabularySize: 1024 },
    rule: () => muon(),
    model: { width: 128, layers: 2, heads: 4, positions: { kind: "sinusoidal" }, initDeviation: 0.5 },
  },
  paper: {
    ...common,
    description: "windows of 512 tokens, 15 % of them hidden, 12 layers of width 768 (BERT base)",
    ...{ time: 512, batch: 256, steps: 100_000, learningRate: 1e-4, evaluateEvery: 1000 },
    vocabularySize: 30_000,
    model: {
      ...{ width: 768, layers: 12, heads: 12, norm: "layer", dropout: 0.1 },
      ...{ positions: { kind: "learned", length: 512 }, feedForward: { kind: "plain", width: 3072 } },
    },
  },
};

/** Hidden tokens of a text filled in by an encoder. */
export const maskedExperiment: Experiment = {
  id: "masked",
  title: "Filling in hidden tokens",
  figure: "nats",
  data: { what: "text file, folder or .jsonl", isRequired: true },
  presets,
  async *run(name, device, { path, say = () => {}, ...options }) {
    const preset = presets[name]!;
    const { time, batch } = preset;
    const text = await readText(path!);
    const cut = Math.floor(text.length * (1 - preset.heldOut));
    const tokenizer = bytePair(
      trainBytePair([text.slice(0, Math.min(cut, 8_000_000))], preset.vocabularySize),
    );
    const [learned, scored] = [tokenizer.encode(text.slice(0, cut)), tokenizer.encode(text.slice(cut))];
    say(
      `${learned.length.toLocaleString("en")} tokens to learn from, ${scored.length.toLocaleString("en")} held out`,
    );
    // One id more than the tokenizer has stands for what is hidden.
    const { vocabularySize } = tokenizer;
    const masking = { maskId: vocabularySize, vocabularySize };
    const evaluation: TokenBatch[] = [];
    for (const window of evaluationWindows(scored, { batch, time }))
      evaluation.push(maskTokens(window, masking, new Random(977, `hidden ${evaluation.length}`)));
    const entrants = preset.contenders.map(
      ({ name: contender, mixer }): Entrant<TokenBatch> => ({
        name: contender,
        make: (seed) => {
          const config = { ...preset.model, vocabularySize: vocabularySize + 1, pattern: [mixer] };
          const model = new MaskedModel(config);
          initialize(model, device, new Random(seed, "init"));
          return {
            task: maskedTokens(model, device),
            batches: maskedWindows(learned, { batch, time }, masking, new Random(seed)),
            score: () => scoreMasked(model, device, evaluation),
          };
        },
      }),
    );
    yield* compareEntrants(entrants, preset, device, options);
  },
};
