import type { RecurrenceRule } from "../recurrence/rule.ts";

/** No decay, additive write, no normaliser and no scale: cosines have a size of their own. */
export const rule: RecurrenceRule = { decay: "none", write: "add", normalize: false, scale: 1 };
