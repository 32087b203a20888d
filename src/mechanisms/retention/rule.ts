import type { RecurrenceRule } from "../recurrence/rule.ts";

/** A decay fixed per head, additive write, no normaliser. */
export const rule: RecurrenceRule = { decay: "head", write: "add", normalize: false, scale: "K^-0.5" };

/** log(1 − 2^(−5−h)) for h = 0 … heads − 1 (arXiv 2307.08621v4): from a half-life of 22 tokens on, doubling. */
export function retentionDecays(heads: number): number[] {
  return Array.from({ length: heads }, (_, h) => Math.log1p(-(2 ** (-5 - h))));
}
