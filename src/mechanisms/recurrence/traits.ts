import type { Traits } from "../mechanism.ts";
import type { RecurrenceRule } from "./rule.ts";

/** The traits that follow from a rule, and those that a mechanism adds or has otherwise. */
export function traitsOf(rule: RecurrenceRule, own: Partial<Traits> = {}): Traits {
  return {
    decay: rule.decay,
    write: rule.write,
    normalized: rule.normalize,
    causal: true,
    full: false,
    prefixExact: true,
    constantState: true,
    linearInValue: true,
    unitKeys: rule.write === "delta",
    correctionReadsDecayed: true,
    readsBeforeWrite: false,
    ...own,
  };
}
