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

/** The distribution that the options make of logits: ids ascending, and their probabilities. */
export interface Distribution {
  readonly ids: Int32Array;
  readonly probabilities: Float64Array;
}

/**
 * Probabilities after penalty, temperature, topK, topP and minP, in that order.
 *
 * A topP of 0 leaves the most likely token; a temperature of 0 puts all weight on it. Ties go to the smaller id. Cost: one
 * pass over the logits, and a sort of their weights where topK or topP cut.
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
  if (repetitionPenalty !== 1) penalize(scores, repetitionPenalty, seen);
  const best = likeliest(scores);
  if (temperature === 0) return { ids: Int32Array.of(best), probabilities: Float64Array.of(1) };
  const most = scores[best]!;
  for (let i = 0; i < scores.length; i++) scores[i] = Math.exp((scores[i]! - most) / temperature);
  const isCut = topK < scores.length || topP < 1;
  return isCut ? cut(scores, topK, topP, minP) : above(scores, minP, scores.length);
}

function penalize(scores: Float64Array, penalty: number, seen: Iterable<number>): void {
  for (const id of new Set(seen)) {
    scores[id] = scores[id]! > 0 ? scores[id]! / penalty : scores[id]! * penalty;
  }
}

/** Id of the largest score. */
function likeliest(scores: Float64Array): number {
  let best = 0;
  for (let i = 0; i < scores.length; i++) {
    const score = scores[i]!;
    if (Number.isNaN(score)) throw new NumericsError("[sampling] the model gave NaN: expected finite logits");
    if (score > scores[best]!) best = i;
  }
  if (!Number.isFinite(scores[best]!)) throw new NumericsError("[sampling] the model gave no finite logit");
  return best;
}

/** The tokens that topK, topP and minP leave; the largest weight is 1. */
function cut(weights: Float64Array, topK: number, topP: number, minP: number): Distribution {
  // Without a comparison function typed arrays sort many times faster.
  const sorted = weights.slice().sort().reverse();
  const kept = Math.min(topK, sorted.length);
  let total = 0;
  for (let i = 0; i < kept; i++) total += sorted[i]!;
  let sum = 0;
  let count = 0;
  while (count < kept && !(count > 0 && (sum >= topP * total || sorted[count]! < minP)))
    sum += sorted[count++]!;
  return above(weights, sorted[count - 1]!, count);
}

/** The `count` tokens of the smallest ids among those of at least this weight, larger weights before equal ones. */
function above(weights: Float64Array, least: number, count: number): Distribution {
  let larger = 0;
  for (const weight of weights) if (weight > least) larger++;
  let equalsLeft = count - larger;
  const ids = new Int32Array(Math.min(count, weights.length));
  let length = 0;
  let sum = 0;
  for (let id = 0; id < weights.length; id++) {
    const weight = weights[id]!;
    if (weight < least || (weight === least && equalsLeft-- <= 0)) continue;
    ids[length++] = id;
    sum += weight;
  }
  const taken = ids.subarray(0, length);
  return { ids: taken, probabilities: Float64Array.from(taken, (id) => weights[id]! / sum) };
}

/** Draws one token. */
export function sample({ ids, probabilities }: Distribution, random: Random): Choice {
  let left = ids.length === 1 ? 0 : random.next();
  let i = 0;
  while (i < ids.length - 1 && left >= probabilities[i]!) {
    left -= probabilities[i]!;
    i++;
  }
  // Rounding may leave a little over: never a token that cannot be.
  while (probabilities[i] === 0 && i > 0) i--;
  return { id: ids[i]!, logProbability: Math.log(probabilities[i]!) };
}

/** Natural-log probabilities of all tokens, nothing cut: logits − log Σ exp(logits). */
export function logProbabilities(logits: ArrayLike<number>): Float64Array {
  const scores = Float64Array.from(logits);
  const most = scores[likeliest(scores)]!;
  let sum = 0;
  for (let i = 0; i < scores.length; i++) sum += Math.exp(scores[i]! - most);
  const shift = most + Math.log(sum);
  for (let i = 0; i < scores.length; i++) scores[i]! -= shift;
  return scores;
}

/** The `count` likeliest tokens, likeliest first, ties by the smaller id. */
export function likeliestOf(logProbability: Float64Array, count: number): Choice[] {
  const best: Choice[] = [];
  for (let id = 0; id < logProbability.length; id++) {
    const value = logProbability[id]!;
    if (best.length === count && !(value > best[count - 1]!.logProbability)) continue;
    let at = best.length;
    while (at > 0 && best[at - 1]!.logProbability < value) at--;
    best.splice(at, 0, { id, logProbability: value });
    if (best.length > count) best.pop();
  }
  return best;
}
