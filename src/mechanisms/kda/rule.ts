import type { RecurrenceRule } from "../recurrence/rule.ts";

/** A decay per key channel, delta write. */
export const rule: RecurrenceRule = { decay: "key", write: "delta", normalize: false, scale: "K^-0.5" };
