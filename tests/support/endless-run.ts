/** Trains a tiny model without end, saving after every step: something to kill. Prints the number of each saved step. */
import { hostDevice } from "../../src/device/host/host.ts";
import { LanguageRun, type LanguageRunConfig } from "../../src/tasks/language-modelling/run.ts";
import { trainingOptions } from "../../src/tasks/language-modelling/training.ts";
import { bytes } from "../../src/text/bytes.ts";

const text = "the whale and the sea and the ship and the whale. ".repeat(20);

/** The ids that it learns. */
export const endlessIds = bytes().encode(text);

/** Its run. */
export function endlessConfig(more: Partial<LanguageRunConfig["training"]> = {}): LanguageRunConfig {
  return {
    ...{ format: "linnet-run", version: 1, task: "language-modelling", text: "whales" },
    tokenizer: bytes().toJSON(),
    model: { vocabularySize: 257, width: 16, layers: 2, heads: 2, pattern: ["gated-delta"], dropout: 0.1 },
    training: trainingOptions({
      ...{ batch: 2, time: 8, steps: 1_000_000, schedule: "constant", saveEvery: 1, average: 0.9 },
      ...more,
    }),
  };
}

async function main(path: string): Promise<void> {
  const run = await LanguageRun.create(path, endlessConfig(), hostDevice({ dtype: "float32" }));
  for await (const { step } of run.train(endlessIds)) process.stdout.write(`${step}\n`);
}

if (process.argv[2] === "train") void main(process.argv[3]!);
