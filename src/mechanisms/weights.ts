/** The T×T view of any mechanism: how much of every token's value is in every token's output. */
import { noGrad } from "../autograd/tape.ts";
import { type Tensor, type Tensors, tensor } from "../autograd/tensor.ts";
import { UnsupportedError } from "../errors.ts";
import { permute } from "../ops/permute/index.ts";
import type { FormOptions, Mechanism } from "./mechanism.ts";

/**
 * The attention weights that a mechanism implies, `[B,H,Tq,T]` with the heads of its output: output = Σ_t weights · v_t,
 * normalised or not as the mechanism is. Without a carried state and without gradients.
 *
 * Read off by values that are 1 for one token each, so it costs one call with V = T and 4·B·H·Tq·T bytes.
 *
 * @throws UnsupportedError for a mechanism whose output is no sum of values.
 * @example
 * const weights = impliedWeights(mechanism("gated-delta"), { q, k, v, g, beta });
 */
export function impliedWeights(mechanism: Mechanism, inputs: Tensors, options: FormOptions = {}): Tensor {
  const carried = new Set(Object.values(mechanism.state).map(({ input }) => input));
  const given = Object.fromEntries(Object.entries(inputs).filter(([name]) => !carried.has(name)));
  if (mechanism.weights !== undefined) return noGrad(() => mechanism.weights!(given, options));
  const { v } = given;
  const form = [mechanism.forms.parallel, mechanism.forms.chunkwise, mechanism.forms.recurrent].find(
    (candidate) => typeof candidate === "function",
  );
  if (v === undefined || form === undefined || !mechanism.traits.linearInValue) {
    throw new UnsupportedError(
      `[weights] ${mechanism.id} has no weights: expected a mechanism that is linear in v, got one that is not`,
    );
  }
  return noGrad(() => permute(form({ ...given, v: oneTokenEach(v) }, options)["output"]!, [0, 2, 1, 3]));
}

/** Values `[B,T,H,T]` of which token t is 1 in column t. */
function oneTokenEach(v: Tensor): Tensor {
  const [B, T, H] = v.shape as [number, number, number];
  const values = new Float64Array(B * T * H * T);
  for (let row = 0; row < B * T * H; row++) values[row * T + (Math.floor(row / H) % T)] = 1;
  return tensor(v.device, values, [B, T, H, T], { dtype: v.dtype });
}
