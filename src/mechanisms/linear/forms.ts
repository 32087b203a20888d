import { type FeatureMap, featureMap } from "../feature-maps/index.ts";
import type { Form, FormName } from "../mechanism.ts";
import { recurrenceForms } from "../recurrence/forms.ts";
import type { RecurrenceRule } from "../recurrence/rule.ts";
import { initialFeatureNormalizer, initialFeatureState, key, query, value } from "../rules.ts";
import { bareRule, rule } from "./rule.ts";

/** Inputs of linear attention. */
export const inputs = {
  q: query,
  k: key,
  v: value,
  initialState: initialFeatureState,
  initialNormalizer: initialFeatureNormalizer,
};

/** Which member of linear attention. */
export interface LinearFormsOptions {
  /** Whether Σ φ(q)·φ(k) divides; as the map is positive unless given. */
  readonly normalize?: boolean;
}

/**
 * The forms of linear attention under any parameter-free map.
 *
 * @example
 * const { output } = linearForms("taylor-2").chunkwise({ q, k, v });
 */
export function linearForms(
  map: string | FeatureMap,
  options: LinearFormsOptions = {},
): Readonly<Record<FormName, Form>> {
  const phi = featureMap(map);
  const chosen: RecurrenceRule = (options.normalize ?? phi.isPositive) ? rule : bareRule;
  const { initialNormalizer, ...bare } = inputs;
  return recurrenceForms({
    id: "linear",
    inputs: chosen.normalize ? { ...bare, initialNormalizer } : bare,
    rule: chosen,
    fullRule: chosen,
    featureWidth: phi.width,
    map: phi,
  });
}
