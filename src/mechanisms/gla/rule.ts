import type { RecurrenceRule } from "../recurrence/rule.ts";

/** A decay per key channel, additive write, no normaliser. */
export const rule: RecurrenceRule = { decay: "key", write: "add", normalize: false, scale: "K^-0.5" };
