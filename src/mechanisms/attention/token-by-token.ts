/** A whole sequence as decoding sees it: one token after another over caches that are filled as it goes. */
import { copyInto } from "../../autograd/move.ts";
import { empty, type Tensor, tensor } from "../../autograd/tensor.ts";
import { part } from "../../ops/split/index.ts";
import { attentionOverCache, writeCache } from "./cache.ts";
import type { AttentionInputs, AttentionOptions } from "./operands.ts";

/**
 * The last T keys and values arrive one by one, each written to a cache behind those before, and each query reads what
 * is there: a slot for every row, caches of their own for packed sequences. No gradients.
 */
export function attentionByTokens(
  { q, k, v, cuSeqlens }: AttentionInputs,
  options: AttentionOptions,
): Tensor {
  const T = q.shape[1]!;
  const output = empty(q.device, [...q.shape.slice(0, 3), v.shape[3]!], { dtype: q.dtype });
  const bounds = cuSeqlens === undefined ? [0, T] : [...cuSeqlens.dataSync()];
  const past = k.shape[1]! - T;
  for (const [n, begin] of bounds.slice(0, -1).entries()) {
    const length = bounds[n + 1]! - begin;
    walk(
      {
        q: part(q, 1, begin, length),
        k: part(k, 1, begin, past + length),
        v: part(v, 1, begin, past + length),
      },
      part(output, 1, begin, length),
      options,
    );
  }
  return output;
}

/** The last T tokens of k and v, one after another behind those before them. */
function walk({ q, k, v }: AttentionInputs, output: Tensor, options: AttentionOptions): void {
  const { device } = q;
  const [B, T] = q.shape as [number, number];
  const capacity = k.shape[1]!;
  const integers = (value: (b: number) => number): Tensor =>
    tensor(
      device,
      Array.from({ length: B }, (_, b) => value(b)),
      [B],
      { dtype: "int32" },
    );
  const slabOf = (x: Tensor): Tensor => {
    const slab = empty(device, x.shape, { dtype: x.dtype });
    copyInto(part(slab, 1, 0, capacity - T), part(x, 1, 0, capacity - T));
    return slab;
  };
  const slabs = { keys: slabOf(k), values: slabOf(v) };
  const slots = integers((b) => b);
  for (let t = 0; t < T; t++) {
    const place = capacity - T + t;
    const entries = integers((b) => b * capacity + place);
    writeCache(slabs.keys, entries, part(k, 1, place, 1));
    writeCache(slabs.values, entries, part(v, 1, place, 1));
    const view = { slots, lengths: integers(() => place + 1), longest: place + 1 };
    copyInto(part(output, 1, t, 1), attentionOverCache(part(q, 1, t, 1), slabs, view, options));
  }
}
