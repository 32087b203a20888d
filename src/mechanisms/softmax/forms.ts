import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { attention } from "../attention/attention-op.ts";
import { cachedForms } from "../attention/cached-forms.ts";
import { attentionByMatrix } from "../attention/matrix-op.ts";
import type { AttentionInputs } from "../attention/operands.ts";
import { attentionByTokens } from "../attention/token-by-token.ts";
import type { InputRule } from "../mechanism.ts";
import { groupedKey, groupedQuery, groupedValue } from "../rules.ts";

/** Inputs of softmax attention. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: groupedQuery,
  k: groupedKey,
  v: groupedValue,
  initialKeys: { ...groupedKey, axes: "B past HKV K", optional: true },
  initialValues: { ...groupedValue, axes: "B past HKV V", optional: true },
};

const attentionInputs = ({ q, k, v, mask, bias, cuSeqlens }: Tensors): AttentionInputs => {
  const [query, key, value] = [q, k, v] as [Tensor, Tensor, Tensor];
  return { q: query, k: key, v: value, mask, bias, cuSeqlens };
};

/** The forms of softmax attention; beside `FormOptions` they take a `window`. */
export const forms = cachedForms({
  id: "softmax",
  inputs,
  state: [
    { of: "k", input: "initialKeys", output: "finalKeys" },
    { of: "v", input: "initialValues", output: "finalValues" },
  ],
  chunkwise: (given, options) => attention(attentionInputs(given), options).output,
  parallel: (given, options) => attentionByMatrix(attentionInputs(given), options).output,
  step: (given, options) => attentionByTokens(attentionInputs(given), options),
});
