import type { RecurrenceRule } from "../recurrence/rule.ts";

/** No decay, additive write, over the normaliser. */
export const rule: RecurrenceRule = { decay: "none", write: "add", normalize: true, scale: 1 };
/** The same without its normaliser. */
export const bareRule: RecurrenceRule = { ...rule, normalize: false };
