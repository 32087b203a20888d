import type { RecurrenceRule } from "../recurrence/rule.ts";

/** A decay fixed per head, additive write, no normaliser and no scale. */
export const rule: RecurrenceRule = { decay: "head", write: "add", normalize: false, scale: 1 };

/**
 * −2^(−8(h+1)/H) · (1 − l/(L − 1 + 1e-5) + 1e-5) for head h of layer l: slopes as ALiBi has them, weaker in deeper layers
 * (MiniMax-01, arXiv 2501.08313v1, and its published model code).
 */
export function lightningDecays(heads: number, layer = 0, layers = 1): number[] {
  const factor = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
  return Array.from({ length: heads }, (_, h) => -(2 ** ((-8 * (h + 1)) / heads)) * factor);
}
