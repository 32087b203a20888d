import type { Tensor } from "../../autograd/tensor.ts";
import { log, softplus, tanh } from "../../ops/activation/index.ts";
import { add, divide, subtract } from "../../ops/arithmetic/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import type { RecurrenceInputs, RecurrenceRule } from "../recurrence/rule.ts";

/** A decay per key channel, additive write, no normaliser: the key is what the decay leaves free. */
export const rule: RecurrenceRule = { decay: "key", write: "add", normalize: false, scale: "K^-0.5" };

/** Inputs of the mechanism: there are no keys. */
export interface Hgrn2Inputs {
  readonly q: Tensor;
  readonly v: Tensor;
  readonly g: Tensor;
  readonly initialState?: Tensor | undefined;
}

/** k = 1 − exp(g), every head of the gate with its own, and the queries repeated to as many heads. */
export function hgrn2Inputs({ q, v, g, initialState }: Hgrn2Inputs): RecurrenceInputs {
  return { q: repeatHeads(q, v.shape[2]! / q.shape[2]!), k: freed(g), v, g, initialState };
}

/** 1 − exp(g) = 2u/(1 + u) with u = tanh(−g/2): relatively exact where little is forgotten, unlike the difference. */
function freed(g: Tensor): Tensor {
  const u = tanh(scale(g, -0.5));
  return divide(scale(u, 2), scale(u, 1, 1));
}

/**
 * log(b + (1 − b)·σ(x)) with a lower bound b of (0, 1): softplus(log b − x) − softplus(−x), which is relatively exact for
 * gates near 1 as well.
 *
 * `x [..., F]`, `bound [F]` → `[..., F]`, <= 0.
 */
export function boundedGate(x: Tensor, bound: Tensor): Tensor {
  const opposite = negate(x);
  return subtract(softplus(add(opposite, log(bound))), softplus(opposite));
}
