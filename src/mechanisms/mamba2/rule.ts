import type { RecurrenceRule } from "../recurrence/rule.ts";

/** A decay per token, additive write, no normaliser and no scale. */
export const rule: RecurrenceRule = { decay: "scalar", write: "add", normalize: false, scale: 1 };
