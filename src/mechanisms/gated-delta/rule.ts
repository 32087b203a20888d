import type { RecurrenceRule } from "../recurrence/rule.ts";

/** Decay per token, delta write, no normaliser. */
export const rule: RecurrenceRule = { decay: "scalar", write: "delta", normalize: false, scale: "K^-0.5" };
