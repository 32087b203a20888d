import type { Tensor } from "../../autograd/tensor.ts";
import type { Linear } from "../../nn/linear.ts";
import { checkTokens, type LayerContext } from "../layer.ts";
import type { HeadSizes } from "../recurrence/recurrent-layer.ts";
import { fromHeads, Stream, toHeads } from "../recurrence/stream.ts";
import {
  type AttendRows,
  attendPacked,
  type FullDeclaration,
  refuseCausal,
  refuseMemoryMask,
} from "./full-forms.ts";

/** What a layer in which every token sees every other is made of. */
export interface FullParts {
  readonly sizes: HeadSizes;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly oProj: Linear;
}

/** What tells such layers apart. */
export interface FullCall {
  readonly who: string;
  readonly why: FullDeclaration<object>["why"];
  readonly attend: AttendRows;
}

/** One call of such a layer: `x [B, T, D]` → `[B, T, D]`, each sequence on its own, keys from the memory where there is one. */
export function forwardFull(
  { sizes, qProj, kProj, vProj, oProj }: FullParts,
  { who, why, attend }: FullCall,
  x: Tensor,
  context: LayerContext,
): Tensor {
  const { D, H } = sizes;
  checkTokens(who, x, D);
  if (context.causal && context.memory === undefined) refuseCausal(who, why);
  refuseMemoryMask(who, context);
  const stream = new Stream(who, x, context);
  const source = context.memory ?? stream.x;
  const rows = {
    q: toHeads(qProj.forward(stream.x), H),
    k: toHeads(kProj.forward(source), H),
    v: toHeads(vProj.forward(source), H),
  };
  const { cuSeqlens } = stream;
  const o = cuSeqlens === undefined ? attend(rows) : attendPacked(rows, [...cuSeqlens.dataSync()], attend);
  return stream.close(oProj.forward(fromHeads(o)));
}
