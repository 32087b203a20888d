import { ConfigError, NumericsError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";

/** How the next token is chosen from its logits. */
export interface SamplingOptions {
  /** Divides the logits; 0 takes the most likely token. 1 unless given. */
  readonly temperature?: number;
  /** Only the k most likely tokens; all unless given. */
  readonly topK?: number;
  /** Only the fewest tokens whose probabilities add up to p (arXiv 1904.09751v2, section 3.1); 1 unless given. */
  readonly topP?: number;
  /** Only tokens at least this share as likely as the most likely one (arXiv 2407.01082v4, section 3); 0 unless given. */
  readonly minP?: number;
  /** Logits of tokens seen before are divided by it where positive, multiplied where negative (arXiv 1909.05858v2, eq. 2). */
  readonly repetitionPenalty?: number;
}

/** A chosen token and its natural-log probability under the distribution it was drawn from. */
export interface Choice {
  readonly id: number;
  readonly logProbability: number;
}

/** Throws ConfigError where an option is outside its range. */
export function checkSampling(options: SamplingOptions): void {
  const { temperature = 1, topK, topP = 1, minP = 0, repetitionPenalty = 1 } = options;
  const refuse = (name: string, expected: string, got: unknown): never => {
    throw new ConfigError(`[sampling] ${name} is ${expected}, got ${got}`);
  };
  if (!(temperature >= 0 && temperature < Number.POSITIVE_INFINITY))
    refuse("temperature", "a number >= 0", temperature);
  if (topK !== undefined && !(Number.isInteger(topK) && topK >= 1))
    refuse("topK", "a whole number >= 1", topK);
  if (!(topP >= 0 && topP <= 1)) refuse("topP", "between 0 and 1", topP);
  if (!(minP >= 0 && minP <= 1)) refuse("minP", "between 0 and 1", minP);
  if (!(repetitionPenalty > 0 && repetitionPenalty < Number.POSITIVE_INFINITY)) {
    refuse("repetitionPenalty", "a number > 0", repetitionPenalty);
  }
}

/** The distribution that the options make of logits: ids from likely to unlikely, and their probabilities. */
export interface Distribution {
  readonly ids: Int32Array;
  readonly probabilities: Float64Array;
}

/**
 * Probabilities after penalty, temperature, topK, topP and minP, in that order.
 *
 * A topP of 0 leaves the most likely token; a temperature of 0 puts all weight on it. Ties go to the smaller id.
 *
 * @throws NumericsError when a logit is NaN or none is finite.
 */
export function distribution(
  logits: ArrayLike<number>,
  options: SamplingOptions = {},
  seen: Iterable<number> = [],
): Distribution {
  const { temperature = 1, topK = logits.length, topP = 1, minP = 0, repetitionPenalty = 1 } = options;
  const scores = Float64Array.from(logits);
  if (repetitionPenalty !== 1) {
    for (const id of new Set(seen)) {
      scores[id] = scores[id]! > 0 ? scores[id]! / repetitionPenalty : scores[id]! * repetitionPenalty;
    }
  }
  let most = Number.NEGATIVE_INFINITY;
  for (const score of scores) {
    if (Number.isNaN(score)) throw new NumericsError("[sampling] the model gave NaN: expected finite logits");
    most = Math.max(most, score);
  }
  if (!Number.isFinite(most)) throw new NumericsError("[sampling] the model gave no finite logit");
  const ids = Int32Array.from(scores.keys()).sort((a, b) => scores[b]! - scores[a]! || a - b);
  if (temperature === 0) return { ids: ids.slice(0, 1), probabilities: Float64Array.of(1) };
  const kept = ids.subarray(0, Math.min(topK, ids.length));
  const weights = Float64Array.from(kept, (id) => Math.exp((scores[id]! - most) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let count = 0;
  let sum = 0;
  while (count < kept.length) {
    if (count > 0 && (sum >= topP * total || weights[count]! < minP * weights[0]!)) break;
    sum += weights[count]!;
    count++;
  }
  return { ids: kept.slice(0, count), probabilities: weights.slice(0, count).map((weight) => weight / sum) };
}

/** Draws one token. */
export function sample({ ids, probabilities }: Distribution, random: Random): Choice {
  let left = ids.length === 1 ? 0 : random.next();
  let i = 0;
  while (i < ids.length - 1 && left >= probabilities[i]!) {
    left -= probabilities[i]!;
    i++;
  }
  return { id: ids[i]!, logProbability: Math.log(probabilities[i]!) };
}
