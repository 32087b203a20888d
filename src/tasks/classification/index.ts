import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { Classifier } from "../../models/classifier.ts";
import type { Random } from "../../tensor/random.ts";
import type { BatchShape } from "../../text/batches.ts";
import type { Task } from "../../train/loop.ts";
import { type SequenceScore, Tally } from "../comparison/score.ts";

/** A text as ids, with the number of its label. */
export interface LabelledIds {
  readonly ids: Int32Array;
  readonly label: number;
}

/** Texts side by side, padding behind the shorter ones. */
export interface LabelledBatch {
  /** `[B, T]`. */
  readonly tokens: Int32Array;
  /** `[B, T]`, 1 for tokens and 0 for padding. */
  readonly mask: Int32Array;
  /** `[B]`. */
  readonly labels: Int32Array;
  readonly batch: number;
  readonly time: number;
}

/**
 * Batches of texts drawn at random, a function of the step alone. Of a text longer than `time` the beginning is taken.
 *
 * @throws ConfigError where there is no text with a token.
 */
export function labelledBatches(
  items: readonly LabelledIds[],
  { batch, time }: BatchShape,
  random: Random,
): (step: number) => LabelledBatch {
  const usable = withTokens("labelledBatches", items);
  return (step) => {
    const draw = random.fork(`texts ${step}`).integers(new Int32Array(batch), 0, usable.length);
    return textBatch(
      Array.from(draw, (i) => usable[i]!),
      time,
    );
  };
}

/** Every text once, texts of like length together. */
export function evaluationTexts(items: readonly LabelledIds[], { batch, time }: BatchShape): LabelledBatch[] {
  const sorted = [...withTokens("evaluationTexts", items)].sort((a, b) => a.ids.length - b.ids.length);
  const batches: LabelledBatch[] = [];
  for (let from = 0; from < sorted.length; from += batch)
    batches.push(textBatch(sorted.slice(from, from + batch), time));
  return batches;
}

function withTokens(who: string, items: readonly LabelledIds[]): readonly LabelledIds[] {
  const usable = items.filter(({ ids }) => ids.length > 0);
  if (usable.length > 0) return usable;
  throw new ConfigError(`[${who}] a text has tokens: expected one that has, got none`);
}

/** Texts side by side, of each its first `longest` tokens. */
export function textBatch(items: readonly LabelledIds[], longest: number): LabelledBatch {
  const batch = items.length;
  const time = Math.min(
    longest,
    items.reduce((most, { ids }) => Math.max(most, ids.length), 1),
  );
  const tokens = new Int32Array(batch * time);
  const mask = new Int32Array(batch * time);
  for (const [b, { ids }] of items.entries()) {
    const own = ids.subarray(0, time);
    tokens.set(own, b * time);
    mask.fill(1, b * time, b * time + own.length);
  }
  return { tokens, mask, labels: Int32Array.from(items, ({ label }) => label), batch, time };
}

/**
 * Labels of whole texts with an encoder: the loss is the mean cross-entropy in nats a text.
 *
 * @example
 * const classifier = new Classifier({ vocabularySize: 257, width: 16, layers: 1, heads: 2, pattern: ["linear"], classes: 2 });
 * initialize(classifier, device, random);
 * const items = ["good", "bad"].map((text, label) => ({ ids: bytes().encode(text), label }));
 * const batches = labelledBatches(items, { batch: 4, time: 8 }, random);
 * const loss = classification(classifier, device).loss(batches(0), { training: true, random });
 * console.log(loss.shape); // []
 */
export function classification(model: Classifier, device: Device): Task<LabelledBatch> {
  return {
    module: model,
    size: ({ batch }) => batch,
    loss: (batch, { training, random }) => {
      const { tokens, mask, labels } = batchTensors(batch, device);
      return model.loss(tokens, labels, { mask, training, random });
    },
  };
}

/** How well a classifier labels texts: nats a text, and the share of texts that get their label. */
export async function scoreClassifier(
  model: Classifier,
  device: Device,
  batches: readonly LabelledBatch[],
): Promise<SequenceScore> {
  const tally = new Tally();
  for (const batch of batches) {
    const logits = scope(device, () => {
      const { tokens, mask } = batchTensors(batch, device);
      return noGrad(() => model.forward(tokens, { mask }).logits);
    });
    tally.add(await logits.data(), model.config.classes, batch.labels);
    logits.dispose();
  }
  return tally.score;
}

/** The ids of a batch on a device. */
export function batchTensors(
  { tokens, mask, labels, batch, time }: LabelledBatch,
  device: Device,
): Record<"tokens" | "mask" | "labels", Tensor> {
  const ids = (values: Int32Array, shape: readonly number[]): Tensor =>
    tensor(device, values, shape, { dtype: "int32" });
  return { tokens: ids(tokens, [batch, time]), mask: ids(mask, [batch, time]), labels: ids(labels, [batch]) };
}
