/** Latent attention in its two ways: keys and values raised from the latent, or queries lowered to it. */
import type { Tensor } from "../../autograd/tensor.ts";
import { concat } from "../../ops/concat/index.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { slice } from "../../ops/split/index.ts";
import { perHead } from "../attention/per-head.ts";
import type { StreamInputs } from "../attention/stream-attention.ts";

/** What a token is beside its query: `c [B,T,R]` and `p [B,T,P]`. */
export interface Latent {
  readonly c: Tensor;
  readonly p: Tensor;
}

/** `[B,T,W]` of all heads to every head → `[B,T,H,W]`. */
function toEveryHead(x: Tensor, heads: number): Tensor {
  const [B, T, W] = x.shape as [number, number, number];
  return repeatHeads(reshape(x, [B, T, 1, W]), heads);
}

/** What a cache keeps of a token: its latent and its shared key, `[B,T,1,R+P]`. */
export function entryOf({ c, p }: Latent): Tensor {
  const [B, T] = c.shape as [number, number];
  return reshape(concat([c, p], -1), [B, T, 1, c.shape[2]! + p.shape[2]!]);
}

/** Ordinary keys and values of every head: `q [B,T,HQ,K]`, `r [B,T,HQ,P]`, raised keys and values `[B,T,HQ,·]`. */
export function raisedInputs(
  q: Tensor,
  r: Tensor,
  { p }: Latent,
  raised: { readonly keys: Tensor; readonly values: Tensor },
): StreamInputs {
  return {
    q: concat([q, r], -1),
    k: concat([raised.keys, toEveryHead(p, q.shape[2]!)], -1),
    v: raised.values,
  };
}

/** Keys and values of every head by matrices `keyUp [HQ,K,R]`, `valueUp [HQ,V,R]`. */
export function raise(
  { c }: Latent,
  keyUp: Tensor,
  valueUp: Tensor,
): { readonly keys: Tensor; readonly values: Tensor } {
  const latents = toEveryHead(c, keyUp.shape[0]!);
  return { keys: perHead(latents, keyUp, true), values: perHead(latents, valueUp, true) };
}

/**
 * One key head of width R + P for all queries, the latent itself as value: q·U^K c = (U^Kᵀ q)·c, so that a cache of
 * latents is read as it is.
 */
export function loweredInputs(q: Tensor, r: Tensor, entry: Tensor, keyUp: Tensor): StreamInputs {
  return {
    q: concat([perHead(q, keyUp, false), r], -1),
    k: entry,
    v: slice(entry, -1, 0, keyUp.shape[2]!),
  };
}

/** Attention over latents `[B,T,HQ,R]` → `[B,T,HQ,V]`. */
export function raiseOutput(o: Tensor, valueUp: Tensor): Tensor {
  return perHead(o, valueUp, true);
}
