/** What every form asks of its inputs before it computes: names, axes, lengths, and values at the debug level. */
import type { Tensor, Tensors } from "../autograd/tensor.ts";
import { ConfigError, NumericsError, ShapeError } from "../errors.ts";
import { solveAxes } from "../tensor/axes.ts";
import type { InputRule } from "./mechanism.ts";

/** Rules by symbol. */
export type InputRules = Readonly<Record<string, InputRule>>;

/** What shapes depend on beside the rules. */
export interface InputsCall {
  readonly causal: boolean;
  readonly cuSeqlens?: Tensor | undefined;
  readonly featureWidth?: ((keyWidth: number) => number) | undefined;
}

let valuesChecked = false;

/**
 * Runs `fn`, which is synchronous, with the values of all inputs checked against their domains: gates <= 0, finite
 * numbers. Reads every input back, so it is for finding mistakes and off unless asked for.
 *
 * @example
 * const { logits } = withValueChecks(() => model.decoder.forward(tokens));
 */
export function withValueChecks<Result>(fn: () => Result): Result {
  const before = valuesChecked;
  valuesChecked = true;
  try {
    return fn();
  } finally {
    valuesChecked = before;
  }
}

/**
 * Refuses inputs that do not fit the rules of a mechanism.
 *
 * @throws ConfigError for a missing or unknown input, ShapeError for axes that disagree and for packed lengths that do
 * not ascend from 0 to T, NumericsError for a value outside its domain while values are checked.
 */
export function checkInputs(who: string, rules: InputRules, inputs: Tensors, call: InputsCall): void {
  checkNames(who, rules, inputs);
  const sizes = solveInputs(who, rules, inputs, call);
  const { H, HV } = sizes;
  if (H !== undefined && HV !== undefined && (H === 0 || HV % H !== 0)) {
    throw new ShapeError(
      `[${who}] q and v have heads that do not group: expected HV a multiple of H, got HV ${HV}, H ${H}`,
      "Value head j reads key head floor(j / (HV/H)).",
    );
  }
  if (call.cuSeqlens !== undefined) checkLengths(who, call.cuSeqlens, sizes["B"] ?? 1, sizes["T"] ?? 0);
  if (valuesChecked) checkValues(who, rules, inputs);
}

function checkNames(who: string, rules: InputRules, inputs: Tensors): void {
  const axesOf = (name: string): string => `[${rules[name]!.axes.split(" ").join(", ")}]`;
  for (const name in rules) {
    if (rules[name]!.optional || inputs[name] !== undefined) continue;
    throw new ConfigError(`[${who}] input ${name} is missing: expected ${name} ${axesOf(name)}, got none`);
  }
  for (const name in inputs) {
    if (rules[name] !== undefined || inputs[name] === undefined) continue;
    throw new ConfigError(
      `[${who}] input ${name} is not known here: expected ${Object.keys(rules).join(", ")}, got ${name}`,
    );
  }
}

function solveInputs(
  who: string,
  rules: InputRules,
  inputs: Tensors,
  call: InputsCall,
): Readonly<Record<string, number | undefined>> {
  const named: Record<string, { shape: readonly number[]; axes: string }> = {};
  for (const [name, { axes, isCarried, isOfQuery }] of describe(rules)) {
    const input = inputs[name];
    if (input === undefined) continue;
    let own = axes;
    if (isCarried && call.cuSeqlens !== undefined) own = axes.replace(/^B/, "N");
    if (isOfQuery && !call.causal) own = axes.replace("T", "Tq");
    named[name] = { shape: input.shape, axes: own };
  }
  const F = inputs["k"] && call.featureWidth?.(inputs["k"].shape.at(-1) ?? 0);
  const N = call.cuSeqlens && call.cuSeqlens.size - 1;
  return solveAxes(who, named, { F, N }) as Readonly<Record<string, number | undefined>>;
}

function describe(rules: InputRules): [string, { axes: string; isCarried: boolean; isOfQuery: boolean }][] {
  return Object.entries(rules).map(([name, { axes, ofQueries = name === "q" }]) => {
    const isCarried = axes.startsWith("B ") && !axes.includes("T");
    return [name, { axes, isCarried, isOfQuery: ofQueries }];
  });
}

const ascending = new WeakSet<Tensor>();

function checkLengths(who: string, cuSeqlens: Tensor, batch: number, time: number): void {
  if (batch !== 1) {
    throw new ShapeError(
      `[${who}] cuSeqlens packs sequences in one batch row: expected B 1, got B ${batch}`,
      "Lay the sequences one after another along T.",
    );
  }
  if (cuSeqlens.dtype !== "int32" || cuSeqlens.rank !== 1 || cuSeqlens.size < 1) {
    throw new ShapeError(
      `[${who}] cuSeqlens holds borders: expected int32 [N+1], got ${cuSeqlens.dtype} [${cuSeqlens.shape.join(", ")}]`,
    );
  }
  if (ascending.has(cuSeqlens)) return;
  const values = [...cuSeqlens.dataSync()];
  const climbs = values.every((value, i) => i === 0 || value >= values[i - 1]!);
  if (!climbs || values[0] !== 0 || values.at(-1) !== time) {
    throw new ShapeError(
      `[${who}] cuSeqlens ascends from 0 to T: expected 0 … ${time}, got ${values.join(", ")}`,
    );
  }
  ascending.add(cuSeqlens);
}

function checkValues(who: string, rules: InputRules, inputs: Tensors): void {
  for (const [name, rule] of Object.entries(rules)) {
    const input = inputs[name];
    if (input === undefined || input.dtype === "int32") continue;
    const admits = rule.admits ?? Number.isFinite;
    const wrong = input.dataSync().find((value) => !admits(value));
    if (wrong === undefined) continue;
    throw new NumericsError(`[${who}] ${name} outside its domain: expected ${rule.domain}, got ${wrong}`);
  }
}
