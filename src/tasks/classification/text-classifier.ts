import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError, FormatError } from "../../errors.ts";
import { Classifier, type ClassifierConfig } from "../../models/classifier.ts";
import { loadTokenizer } from "../../text/hugging-face.ts";
import type { Tokenizer, TokenizerData } from "../../text/tokenizer.ts";
import { type RunConfig, RunFolder } from "../../train/run-folder.ts";
import { batchTensors, textBatch } from "./index.ts";

/** A classifier of texts that stands in a folder. */
export interface ClassificationRunConfig extends RunConfig {
  readonly task: "classification";
  readonly model: ClassifierConfig;
  readonly tokenizer: TokenizerData;
  /** Names of the labels by their numbers. */
  readonly labels: readonly string[];
  /** Tokens of a text that are read, from its beginning. */
  readonly time: number;
  /** Where the texts came from that it learned. */
  readonly text: string;
}

/** What a classifier says of a text. */
export interface TextLabel {
  /** The likeliest label and its probability. */
  readonly label: string;
  readonly probability: number;
  /** Of every label, in the order of the labels. */
  readonly probabilities: Readonly<Record<string, number>>;
}

/** Ids of the part of a text that a classifier reads; characters that no token could reach are not encoded. */
export function idsOf(text: string, tokenizer: Tokenizer, time: number): Int32Array {
  return tokenizer.encode(text.slice(0, 8 * time)).subarray(0, time);
}

const together = 16;

/** A trained classifier with its tokenizer and the names of its labels. */
export class TextClassifier {
  readonly model: Classifier;
  readonly tokenizer: Tokenizer;
  readonly labels: readonly string[];
  readonly #time: number;
  readonly #device: Device;

  constructor(config: ClassificationRunConfig, model: Classifier, tokenizer: Tokenizer, device: Device) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.labels = config.labels;
    this.#time = config.time;
    this.#device = device;
  }

  /**
   * Labels texts; of a longer one the beginning that the classifier was trained to read.
   *
   * @throws ConfigError for a text without a token; the signal's reason when it aborts.
   */
  async label(
    texts: readonly string[],
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<TextLabel[]> {
    const items = texts.map((text, i) => {
      const ids = idsOf(text, this.tokenizer, this.#time);
      if (ids.length > 0) return { ids, i };
      throw new ConfigError(`[classifier] a text has tokens: expected one or more in text ${i}, got none`);
    });
    // Texts of like length go together: little padding.
    items.sort((a, b) => a.ids.length - b.ids.length);
    const found = new Array<TextLabel>(texts.length);
    for (let from = 0; from < items.length; from += together) {
      options.signal?.throwIfAborted();
      const part = items.slice(from, from + together);
      const logits = await this.#logits(part.map(({ ids }) => ids));
      const width = this.labels.length;
      for (const [b, { i }] of part.entries())
        found[i] = this.#named(logits.subarray(b * width, (b + 1) * width));
    }
    return found;
  }

  /** Gives back the memory of the weights. */
  dispose(): void {
    this.model.dispose();
  }

  async #logits(rows: readonly Int32Array[]): Promise<Float64Array> {
    const batch = textBatch(
      rows.map((ids) => ({ ids, label: 0 })),
      this.#time,
    );
    const logits = scope(this.#device, () => {
      const { tokens, mask } = batchTensors(batch, this.#device);
      return noGrad(() => this.model.forward(tokens, { mask }).logits);
    });
    const values = Float64Array.from(await logits.data());
    logits.dispose();
    return values;
  }

  #named(logits: Float64Array): TextLabel {
    const most = logits.reduce((a, b) => Math.max(a, b));
    const shares = logits.map((value) => Math.exp(value - most));
    const total = shares.reduce((a, b) => a + b);
    const probabilities = Object.fromEntries(this.labels.map((name, i) => [name, shares[i]! / total]));
    const label = this.labels[logits.indexOf(most)]!;
    return { label, probability: probabilities[label]!, probabilities };
  }
}

/**
 * The trained classifier of a run folder, such as `linnet experiment classification` leaves one for every contender.
 *
 * @throws FormatError for a folder that holds none, or whose weights are not those that were saved.
 * @example
 * ```ts no-run
 * const classifier = await openTextClassifier("runs/classification-quick/linear", device);
 * const [first] = await classifier.label(["You have won"]);
 * console.log(first!.label, first!.probability);
 * ```
 */
export async function openTextClassifier(path: string, device: Device): Promise<TextClassifier> {
  const folder = await RunFolder.open(path);
  if (folder.config.task !== "classification") {
    throw new FormatError(
      `[run] ${path} holds a run of another task: expected classification, got ${folder.config.task}`,
    );
  }
  const config = folder.config as ClassificationRunConfig;
  const model = new Classifier(config.model);
  await folder.loadModel(model, device);
  return new TextClassifier(config, model, await loadTokenizer(config.tokenizer), device);
}
