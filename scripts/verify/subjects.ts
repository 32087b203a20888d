/** What stands for the op of a golden file: forms, a float64 reference, and inputs as the two take them. */
import { linearForms } from "../../src/mechanisms/linear/forms.ts";
import type { Form, FormName, FormOptions, Mechanism, Reference } from "../../src/mechanisms/mechanism.ts";
import { formNames } from "../../src/mechanisms/mechanism.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import { zeroValues } from "../../src/mechanisms/values.ts";
import type { Golden, NamedValues } from "./golden.ts";

/** A golden file's op as this library has it. */
export interface Subject {
  readonly inputs: NamedValues;
  readonly options: FormOptions;
  /** Absent where there is no plain reference of exactly this op. */
  readonly reference?: (inputs: NamedValues) => ReturnType<Reference>;
  readonly forms: readonly (readonly [FormName, Form])[];
}

/** Why a golden file is passed over. */
export interface Skip {
  readonly why: string;
}

/** Ops that go under the name of one of their members. */
const members: Readonly<Record<string, string>> = { "scalar-decay": "mamba2" };

const find = (id: string): Mechanism | undefined => mechanisms.find((candidate) => candidate.id === id);

function present(forms: Readonly<Record<FormName, Form | object>>, options: FormOptions): [FormName, Form][] {
  const causal = options.causal ?? true;
  return formNames.flatMap((name) => {
    const form = forms[name];
    // A single step sees what came before and nothing else.
    return typeof form === "function" && (causal || name !== "step") ? [[name, form as Form]] : [];
  });
}

/** Linear attention under a map of its own: without a map it is a scalar decay that never decays. */
function mapped(golden: Golden, map: string): Subject | Skip {
  const { inputs, options } = golden;
  const forms = present(linearForms(map, { normalize: golden.normalize }), options);
  const scalarDecay = find("mamba2");
  if (map !== "identity" || golden.normalize || scalarDecay === undefined) return { inputs, options, forms };
  const g = zeroValues(inputs["v"]!.shape.slice(0, 3));
  return { inputs, options, forms, reference: (given) => scalarDecay.reference({ ...given, g }, options) };
}

/** The subject of a golden file, or why there is none. */
export function subjectOf(golden: Golden): Subject | Skip {
  const { op, featureMap, inputs, options } = golden;
  if (op === "linear" && featureMap === "identity") return mapped(golden, featureMap);
  // The map has the scale inside.
  if (op === "based") return mapped({ ...golden, options: { ...options, scale: 1 } }, "taylor-2");
  const found = find(members[op] ?? op);
  if (found === undefined) return { why: `no mechanism called "${op}" here yet` };
  const forms = present(found.forms, options);
  return { inputs, options, forms, reference: (given) => found.reference(given, options) };
}
