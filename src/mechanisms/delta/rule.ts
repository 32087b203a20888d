import type { RecurrenceRule } from "../recurrence/rule.ts";

/** No decay, delta write. */
export const rule: RecurrenceRule = { decay: "none", write: "delta", normalize: false, scale: "K^-0.5" };
