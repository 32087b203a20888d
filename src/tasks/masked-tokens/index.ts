import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { MaskedModel } from "../../models/masked-model.ts";
import { Random } from "../../tensor/random.ts";
import { type BatchShape, type BatchSource, randomWindows, type TokenBatch } from "../../text/batches.ts";
import type { TokenSource } from "../../text/token-file.ts";
import type { Task } from "../../train/loop.ts";
import type { SequenceScore } from "../comparison/score.ts";
import { scoreSequences, sequenceTask, unasked } from "../comparison/sequences.ts";

/** How tokens are hidden. */
export interface MaskingOptions {
  /** Id that stands for a hidden token; often one more than the tokenizer has. */
  readonly maskId: number;
  /** Ids below this may stand in as random tokens: the tokenizer's vocabulary. */
  readonly vocabularySize: number;
  /** Share of tokens that are asked; 0.15 unless given. */
  readonly share?: number;
}

/**
 * Hides tokens of every row and asks for them: of the share that is asked 80 % become the mask, 10 % a random token,
 * 10 % stay as they are (BERT, arXiv 1810.04805v2, section 3.1).
 *
 * @returns `inputs` with hidden tokens and `targets` with what stood there, −100 elsewhere; each row asks at least once.
 * @throws ConfigError where the share is none.
 */
export function maskTokens(
  { inputs, batch, time }: Pick<TokenBatch, "inputs" | "batch" | "time">,
  { maskId, vocabularySize, share = 0.15 }: MaskingOptions,
  random: Random,
): TokenBatch {
  if (!(share > 0 && share <= 1))
    throw new ConfigError(
      `[maskTokens] share is a share of the tokens: expected 0 < share <= 1, got ${share}`,
    );
  const hidden = Int32Array.from(inputs);
  const targets = new Int32Array(batch * time).fill(unasked);
  const count = Math.max(1, Math.round(share * time));
  for (let b = 0; b < batch; b++) {
    const places = random.choice(time, count);
    const ways = random.uniform(new Float64Array(count), 0, 1);
    const others = random.integers(new Int32Array(count), 0, vocabularySize);
    for (let i = 0; i < count; i++) {
      const at = b * time + places[i]!;
      targets[at] = inputs[at]!;
      if (ways[i]! < 0.8) hidden[at] = maskId;
      else if (ways[i]! < 0.9) hidden[at] = others[i]!;
    }
  }
  return { inputs: hidden, targets, batch, time };
}

/** Windows at random places of a text with tokens hidden, a function of the step alone. */
export function maskedWindows(
  ids: TokenSource,
  shape: BatchShape,
  options: MaskingOptions,
  random: Random,
): BatchSource {
  const windows = randomWindows(ids, shape, random);
  return (step) => maskTokens(windows(step), options, new Random(random.seed, `hidden ${step}`));
}

/**
 * Hidden tokens filled in by an encoder: the loss is the mean cross-entropy in nats a hidden token.
 *
 * @example
 * const masked = new MaskedModel({ vocabularySize: 258, width: 16, layers: 1, heads: 2, pattern: ["linear"] });
 * initialize(masked, device, random);
 * const ids = bytes().encode("the whale and the sea and the ship. ".repeat(9));
 * const batches = maskedWindows(ids, { batch: 2, time: 16 }, { maskId: 257, vocabularySize: 257 }, random);
 * const loss = maskedTokens(masked, device).loss(batches(0), { training: true, random });
 * console.log(loss.shape); // []
 */
export function maskedTokens(model: MaskedModel, device: Device): Task<TokenBatch> {
  return sequenceTask(model, device);
}

/** How well a model fills in hidden tokens: nats, and the share of them that is most likely. */
export function scoreMasked(
  model: MaskedModel,
  device: Device,
  batches: readonly TokenBatch[],
): Promise<SequenceScore> {
  return scoreSequences(model, device, batches);
}
