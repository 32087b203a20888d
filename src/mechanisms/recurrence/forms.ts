import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import type { FeatureMap } from "../feature-maps/feature-map.ts";
import { checkInputs, type InputRules } from "../inputs.ts";
import type { Form, FormName, FormOptions } from "../mechanism.ts";
import { type Packing, pack, packingOf, unpack } from "./packing.ts";
import { type RecurrenceInputs, type RecurrenceRule, runRule } from "./rule.ts";
import { stepThrough } from "./step.ts";

/** What the preparation of inputs may look at. */
export interface PrepareCall {
  readonly causal: boolean;
  readonly cuSeqlens: Tensor | undefined;
}

/** What the engine gets, and parts of the final state that are not the engine's. */
export interface Prepared {
  readonly inputs: RecurrenceInputs;
  readonly finals?: Tensors;
}

/** A mechanism as the engine needs to know it. */
export interface FormsDeclaration {
  readonly id: string;
  readonly inputs: InputRules;
  readonly rule: RecurrenceRule;
  /** The rule of `causal: false`, where the mechanism has it. */
  readonly fullRule?: RecurrenceRule;
  readonly featureWidth?: (keyWidth: number) => number;
  /** What q and k pass through, where it has no random part. */
  readonly map?: FeatureMap;
  /** Maps q and k, fills in gates that are constants. */
  prepare?(inputs: Tensors, call: PrepareCall): Prepared;
}

/**
 * The fast forms of a mechanism that is a recurrence: inputs by symbol → output and final state.
 *
 * Beside the inputs of its contract every form takes `mask [B,T]` int32: tokens where it is 0 enter neither state nor
 * normaliser and have zeros as output. `step` has no gradients.
 */
export function recurrenceForms(declaration: FormsDeclaration): Readonly<Record<FormName, Form>> {
  return {
    recurrent: formOf(declaration, "recurrent"),
    step: formOf(declaration, "step"),
    chunkwise: formOf(declaration, "chunkwise"),
    parallel: formOf(declaration, "parallel"),
  };
}

function formOf(declaration: FormsDeclaration, name: FormName): Form {
  const { id, inputs: rules, featureWidth } = declaration;
  const who = `${id}.${name}`;
  return ({ mask, ...inputs }, options = {}) => {
    const causal = options.causal ?? true;
    if (!causal) checkFull(who, declaration, name);
    checkInputs(who, rules, inputs, { causal, cuSeqlens: options.cuSeqlens, featureWidth });
    if (mask === undefined) return compute(declaration, name, inputs, options);
    if (options.cuSeqlens !== undefined) {
      throw new ConfigError(
        `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
      );
    }
    const [B, T] = inputs["v"]!.shape as [number, number];
    const packing = packingOf(who, mask, B, T);
    if (packing === undefined) return compute(declaration, name, inputs, options);
    const packed = withoutPadding(rules, inputs, packing);
    const { output, ...finals } = compute(declaration, name, packed, {
      ...options,
      cuSeqlens: packing.cuSeqlens,
    });
    return { output: unpack(output!, packing), ...finals };
  };
}

function withoutPadding(rules: InputRules, inputs: Tensors, packing: Packing): Tensors {
  const result: Record<string, Tensor | undefined> = {};
  for (const name in inputs) {
    const input = inputs[name];
    result[name] = input && rules[name]!.axes.startsWith("B T") ? pack(input, packing) : input;
  }
  return result;
}

function checkFull(who: string, { fullRule }: FormsDeclaration, name: FormName): void {
  if (fullRule !== undefined && name !== "step") return;
  const reason =
    name === "step" ? "a single step sees what came before" : "its update follows the order of the tokens";
  throw new UnsupportedError(
    `[${who}] has no causal: false: expected causal, got false, but ${reason}`,
    fullRule === undefined ? "Leave causal out." : "Use another form.",
  );
}

function compute(
  declaration: FormsDeclaration,
  name: FormName,
  inputs: Tensors,
  options: FormOptions,
): Tensors {
  const { rule, fullRule, prepare, map } = declaration;
  const { causal = true, cuSeqlens, scale, eps, chunk } = options;
  const prepared = prepare?.(inputs, { causal, cuSeqlens }) ?? { inputs: inputs as RecurrenceInputs };
  const call = { causal, cuSeqlens, scale, eps, chunk, map };
  const chosen = causal ? rule : fullRule!;
  const { finalNormalizer, ...outputs } =
    name === "step"
      ? stepThrough(chosen, prepared.inputs, call)
      : runRule(chosen, name, prepared.inputs, call);
  return { ...outputs, ...(finalNormalizer && { finalNormalizer }), ...prepared.finals };
}
