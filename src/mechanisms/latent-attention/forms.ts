import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { attention } from "../attention/attention-op.ts";
import { type CachedCompute, cachedForms } from "../attention/cached-forms.ts";
import { attentionByMatrix } from "../attention/matrix-op.ts";
import type { AttentionInputs, AttentionOptions } from "../attention/operands.ts";
import { attentionByTokens } from "../attention/token-by-token.ts";
import type { FormOptions, InputRule } from "../mechanism.ts";
import { groupedQuery } from "../rules.ts";
import { entryOf, loweredInputs, raise, raisedInputs, raiseOutput } from "./absorb.ts";

const rule = (axes: string, optional = false): InputRule => ({
  ...{ axes, domain: "any", sample: (normal: number) => normal },
  ...(optional ? { optional } : {}),
});

/** Inputs of latent attention. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: groupedQuery,
  r: { ...rule("B T HQ P"), ofQueries: true },
  c: rule("B T R"),
  p: rule("B T P"),
  keyUp: rule("HQ K R"),
  valueUp: rule("HQ V R"),
  initialLatent: rule("B past R", true),
  initialSharedKey: rule("B past P", true),
};

type Inputs = Record<"q" | "r" | "c" | "p" | "keyUp" | "valueUp", Tensor>;

const scaleOf = ({ q, r }: Inputs, { scale }: AttentionOptions): number =>
  scale ?? (q.shape[3]! + r.shape[3]!) ** -0.5;

/** Keys and values raised, then attention of every head to its own. */
function raised(
  attend: (inputs: AttentionInputs, options: AttentionOptions) => { readonly output: Tensor },
): CachedCompute {
  return (given: Tensors, options) => {
    const own = given as Inputs;
    const { q, r, keyUp, valueUp } = own;
    const { mask, bias, cuSeqlens } = given;
    const parts = raisedInputs(q, r, own, raise(own, keyUp, valueUp));
    return attend({ ...parts, mask, bias, cuSeqlens }, { ...options, scale: scaleOf(own, options) }).output;
  };
}

/** Queries lowered, then attention to the latents as they are. */
const lowered: CachedCompute = (given: Tensors, options) => {
  const own = given as Inputs;
  const { q, r, keyUp, valueUp } = own;
  const parts = loweredInputs(q, r, entryOf(own), keyUp);
  const scale = scaleOf(own, options);
  const o = attentionByTokens({ ...parts, cuSeqlens: given["cuSeqlens"] }, { ...options, scale });
  return raiseOutput(o, valueUp);
};

/** Weights `[B,HQ,Tq,T]` of the raised values. */
export function weights(given: Tensors, options: FormOptions): Tensor {
  const own = given as Inputs;
  const { q, r, keyUp, valueUp } = own;
  const { causal = true, cuSeqlens } = options;
  const parts = raisedInputs(q, r, own, raise(own, keyUp, valueUp));
  const inputs = { ...parts, mask: given["mask"], cuSeqlens };
  return attentionByMatrix(inputs, { causal, scale: scaleOf(own, options) }).weights;
}

/** The forms of latent attention; `step` reads the latents, the others raise keys and values from them. */
export const forms = cachedForms({
  id: "latent-attention",
  inputs,
  state: [
    { of: "c", input: "initialLatent", output: "finalLatent" },
    { of: "p", input: "initialSharedKey", output: "finalSharedKey" },
  ],
  chunkwise: raised(attention),
  parallel: raised(attentionByMatrix),
  step: lowered,
});
