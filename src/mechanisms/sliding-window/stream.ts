/** The calls of a layer: whole sequences, pieces behind a window that was kept, single tokens. */
import { isRecording, noGrad } from "../../autograd/tape.ts";
import { Tensor } from "../../autograd/tensor.ts";
import { concat } from "../../ops/concat/index.ts";
import { slice } from "../../ops/split/index.ts";
import { putSlots, takeSlots } from "../recurrence/slab.ts";
import type { Stream } from "../recurrence/stream.ts";
import { attendWindowed, type Join } from "./join.ts";
import type { Maps } from "./maps.ts";
import { keepRecent, type Ring, type RingRows, recent, stepWindow } from "./ring.ts";

/** Tokens of a call: `q [B,T,HQ,K]`, `k [B,T,HKV,K]`, `v [B,T,HKV,V]`, `gate [B,T,HQ]` where parts have their own denominators. */
export interface Tokens {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly gate: Tensor | undefined;
}

/** What stays the same for all tokens. */
export interface Setting {
  readonly window: number;
  readonly scale: number | undefined;
  readonly maps: Maps;
  readonly how: Omit<Join, "gate">;
}

/** Output `[B,T,HQ,V]` of the tokens of a call; the ring, where there is one, is brought up to date. */
export function attendRing(stream: Stream, ring: Ring | undefined, tokens: Tokens, setting: Setting): Tensor {
  const { cuSeqlens, state } = stream;
  if (ring === undefined || state === undefined)
    return sequence(tokens, setting, undefined, cuSeqlens).output;
  const { slots, seen } = state;
  const rows = { slots, slotList: [...slots.dataSync()], seen };
  const wantsGradients = isRecording() && (tokens.q.requiresGrad || tokens.k.requiresGrad);
  if (cuSeqlens === undefined && tokens.q.shape[1] === 1 && !wantsGradients) {
    const { scale, maps, how } = setting;
    return noGrad(() => stepWindow(ring, rows, tokens, maps, { ...how, gate: tokens.gate }, scale));
  }
  const held = seen.map((count) => Math.min(count, setting.window));
  if (cuSeqlens === undefined && held.every((count) => count === held[0])) {
    return behind(ring, rows, held[0] ?? 0, tokens, setting);
  }
  return eachSequence(tokens, cuSeqlens && [...cuSeqlens.dataSync()], (own, n) => {
    const row = { slots: slice(slots, 0, n, n + 1), slotList: [rows.slotList[n]!], seen: [seen[n]!] };
    return behind(ring, row, held[n]!, own, setting);
  });
}

function sequence(
  { q, k, v, gate }: Tokens,
  { window, scale, maps, how }: Setting,
  before: { readonly keys: Tensor; readonly values: Tensor; readonly sums: Tensor } | undefined,
  cuSeqlens?: Tensor,
): { output: Tensor; state: Tensor } {
  const holds = before !== undefined && before.keys.shape[1]! > 0;
  const keys = holds ? concat([before.keys, k], 1) : k;
  const values = holds ? concat([before.values, v], 1) : v;
  const call = { q, keys, values, state: before?.sums, window, scale, form: "chunkwise", cuSeqlens } as const;
  return attendWindowed({ ...call, ...maps }, { ...how, gate });
}

/** Rows that all hold `held` tokens of their window. */
function behind(ring: Ring, rows: RingRows, held: number, tokens: Tokens, setting: Setting): Tensor {
  const sums = takeSlots(ring.sums, rows.slots);
  const { output, state } = sequence(tokens, setting, { ...recent(ring, rows, held), sums });
  noGrad(() => {
    keepRecent(ring, rows, tokens.k, tokens.v);
    putSlots(ring.sums, rows.slots, state);
  });
  return output;
}

/** Sequences whose windows are filled differently, one after another: rows of a batch, or stretches of a packed row. */
function eachSequence(
  tokens: Tokens,
  bounds: readonly number[] | undefined,
  attend: (own: Tokens, n: number) => Tensor,
): Tensor {
  const axis = bounds === undefined ? 0 : 1;
  const borders = bounds ?? Array.from({ length: tokens.q.shape[0]! + 1 }, (_, b) => b);
  const outputs: Tensor[] = [];
  for (const [n, begin] of borders.slice(0, -1).entries()) {
    const end = borders[n + 1]!;
    if (end === begin) continue;
    const cut = (x: Tensor): Tensor => slice(x, axis, begin, end);
    const own = {
      q: cut(tokens.q),
      k: cut(tokens.k),
      v: cut(tokens.v),
      gate: tokens.gate && cut(tokens.gate),
    };
    outputs.push(attend(own, n));
  }
  return outputs.length === 1 ? outputs[0]! : concat(outputs, axis);
}

/** A slab `[slots, window, ...]` and the like as the parts of a ring. */
export function ringOf(parts: Readonly<Record<string, Tensor>>, window: number): Ring {
  const sums = parts["sums"]!;
  if (window > 0) return { keys: parts["windowKey"]!, values: parts["windowValue"]!, sums };
  const none = new Tensor(sums.layout, [sums.shape[0]!, 0, 1, 1]);
  return { keys: none, values: none, sums };
}
