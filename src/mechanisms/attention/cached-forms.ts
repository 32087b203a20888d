/** The forms of mechanisms whose state is what they have seen. */
import { isRecording } from "../../autograd/tape.ts";
import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { checkInputs, type InputRules } from "../inputs.ts";
import { type Absent, absent, type Form, type FormName, type FormOptions } from "../mechanism.ts";
import { type Packing, pack, packingOf, unpack } from "../recurrence/packing.ts";
import { type AttentionOptions, checkMask } from "./operands.ts";

/** How a form is called beyond its inputs. */
export interface CachedFormOptions extends FormOptions {
  /** A causal query sees its own position and the window − 1 before it; everything unless given. */
  readonly window?: number;
}

/** A part of the state: the input that lies before an input by tokens, and the output that holds both. */
export interface CachedPart {
  readonly of: string;
  readonly input: string;
  readonly output: string;
}

/** Inputs with what lies before them already in front, and what a call says of them. */
export type CachedCompute = (
  inputs: Tensors & { readonly mask?: Tensor; readonly bias?: Tensor; readonly cuSeqlens?: Tensor },
  options: AttentionOptions,
) => Tensor;

/** A mechanism as its forms need to know it. */
export interface CachedDeclaration {
  readonly id: string;
  readonly inputs: InputRules;
  readonly state: readonly CachedPart[];
  readonly chunkwise: CachedCompute;
  readonly parallel: CachedCompute;
  readonly step: CachedCompute;
}

/**
 * `chunkwise` in tiles, `parallel` through the T×Tk matrix, `step` one token after another over a cache.
 *
 * Beside the inputs of its contract every form takes `mask [B,T]` (int32 or uint8) over the tokens of the keys: where it
 * is 0 a key is seen by nobody, and in causal calls without a bias the token's own output is zeros. `bias
 * [B or 1, HQ or 1, T, Tk]` is added to the scaled scores by `chunkwise` and `parallel`. What the state holds lies before
 * the tokens of a causal call; the final state is that and the call's own tokens, absent where a mask or packing makes
 * rows uneven or a call is not causal.
 */
export function cachedForms(declaration: CachedDeclaration): Readonly<Record<FormName, Form | Absent>> {
  return {
    recurrent: absent("Its state is all it has seen; step walks token by token over a cache."),
    step: formOf(declaration, "step"),
    chunkwise: formOf(declaration, "chunkwise"),
    parallel: formOf(declaration, "parallel"),
  };
}

function formOf(declaration: CachedDeclaration, name: "step" | "chunkwise" | "parallel"): Form {
  const { id, inputs: rules, state } = declaration;
  const who = `${id}.${name}`;
  return ({ mask, bias, ...own }, options: CachedFormOptions = {}) => {
    const { causal = true, cuSeqlens, window, scale } = options;
    checkInputs(who, rules, own, { causal, cuSeqlens });
    checkMask(who, mask);
    checkPast(who, state, { ...own, mask }, causal, cuSeqlens);
    if (name === "step") checkStep(who, { ...own, bias }, causal);
    const compute = declaration[name];
    const call = { causal, window, scale };
    const packing = causal && bias === undefined ? packingFor(who, mask, own[state[0]!.of]!) : undefined;
    if (packing !== undefined) {
      const real = { ...withoutPadding(rules, own, packing), cuSeqlens: packing.cuSeqlens };
      return { output: unpack(compute(real as Parameters<CachedCompute>[0], call), packing) };
    }
    const whole: Record<string, Tensor | undefined> = { ...own };
    const finals: Record<string, Tensor> = {};
    for (const { of, input, output } of state) {
      const before = own[input];
      whole[of] = before === undefined ? own[of] : concat([before, own[of]!], 1);
      delete whole[input];
      finals[output] = whole[of]!;
    }
    const output = compute({ ...whole, mask, bias, cuSeqlens } as Parameters<CachedCompute>[0], call);
    return causal && mask === undefined && cuSeqlens === undefined ? { output, ...finals } : { output };
  };
}

function packingFor(who: string, mask: Tensor | undefined, keys: Tensor): Packing | undefined {
  const [B, T] = keys.shape as [number, number];
  return mask && packingOf(who, mask, B, T);
}

function withoutPadding(rules: InputRules, inputs: Tensors, packing: Packing): Tensors {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, input]) => [
      name,
      input && rules[name]!.axes.startsWith("B T") ? pack(input, packing) : input,
    ]),
  );
}

function checkPast(
  who: string,
  state: readonly CachedPart[],
  inputs: Tensors,
  causal: boolean,
  cuSeqlens: Tensor | undefined,
): void {
  const { mask } = inputs;
  if (mask !== undefined && cuSeqlens !== undefined) {
    throw new ConfigError(
      `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
    );
  }
  const names = state.map(({ input }) => input);
  const given = names.filter((name) => inputs[name] !== undefined);
  if (given.length === 0) return;
  if (given.length < names.length) {
    throw new ConfigError(
      `[${who}] the parts of a state come together: expected ${names.join(" and ")}, got ${given.join(" and ")}`,
    );
  }
  if (mask === undefined && cuSeqlens === undefined && causal) return;
  throw new UnsupportedError(
    `[${who}] ${names.join(" and ")} continue whole causal rows: expected causal: true without mask and cuSeqlens`,
    "Layers carry a state through padded and packed calls.",
  );
}

function checkStep(who: string, inputs: Tensors, causal: boolean): void {
  if (!causal) {
    throw new UnsupportedError(
      `[${who}] has no causal: false: expected causal, got false, but a single step sees what came before`,
      "Use another form.",
    );
  }
  if (inputs["bias"] !== undefined) {
    throw new UnsupportedError(
      `[${who}] steps have no bias: expected none, got one`,
      "Use the chunkwise form.",
    );
  }
  const wanting = Object.entries(inputs).find(([, input]) => input?.requiresGrad);
  if (wanting === undefined || !isRecording()) return;
  throw new UnsupportedError(
    `[${who}] single steps have no gradients: expected inputs without them, got ${wanting[0]} that requires one`,
    "Train with the chunkwise form, or wrap the call in noGrad.",
  );
}
