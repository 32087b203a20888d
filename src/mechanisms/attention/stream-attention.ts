/** What layers with a cache of keys and values do with one call: where tokens go, and what their queries see. */
import { isRecording, noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { embedding } from "../../ops/embedding/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { takeSlots } from "../recurrence/slab.ts";
import type { Stream } from "../recurrence/stream.ts";
import { attention } from "./attention-op.ts";
import {
  attentionOfOne,
  attentionOverCache,
  type CacheSlabs,
  type CacheView,
  entriesOf,
  writeCache,
} from "./cache.ts";
import type { AttentionOptions } from "./operands.ts";

/** Queries, keys and values of the tokens of one call. */
export interface StreamInputs {
  /** `[B,T,HQ,K]` */
  readonly q: Tensor;
  /** `[B,T,HKV,K]` */
  readonly k: Tensor;
  /** `[B,T,HKV,V]` */
  readonly v: Tensor;
}

type Choices = Pick<AttentionOptions, "window" | "scale">;

/** Where the tokens of a call go. */
export interface CachePlan extends CacheView {
  /** int32, for every token: slot · capacity + place. */
  readonly entries: Tensor;
  /** What the host knows of the sequences; absent where only the device knows. */
  readonly sequences?: Sequences;
}

/** Slots, tokens seen before, and new tokens of every sequence. */
interface Sequences {
  readonly slotList: readonly number[];
  readonly seen: readonly number[];
  readonly counts: readonly number[];
  readonly capacity: number;
}

type CallPlan = CachePlan & { readonly sequences: Sequences };

const plans = new WeakMap<readonly number[], CallPlan>();

/** The plan of a call; the layers of a model, which share the tokens seen, share it. */
function planOf(stream: Stream, slab: Tensor): CachePlan {
  const { state, cuSeqlens, x, who } = stream;
  if (stream.isStep && state?.places !== undefined) {
    const { lengths, entries, last } = state.places;
    return { slots: state.slots, lengths, entries, longest: last + 1 };
  }
  const { seen, slots } = state!;
  const capacity = slab.shape[1]!;
  const [B, T] = x.shape as [number, number];
  const bounds = cuSeqlens && [...cuSeqlens.dataSync()];
  const counts = bounds ? bounds.slice(1).map((end, n) => end - bounds[n]!) : new Array<number>(B).fill(T);
  const known = plans.get(seen);
  if (known?.slots === slots && known.sequences.capacity === capacity && isSame(known, counts)) return known;
  const lengths = counts.map((count, n) => seen[n]! + count);
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
  if (longest > capacity) {
    throw new ConfigError(
      `[${who}] the cache is full: expected room for ${longest} tokens, got a capacity of ${capacity}`,
      "Grow the state before the call, or cut the text.",
    );
  }
  const slotList = [...slots.dataSync()];
  const entries = counts.flatMap((count, n) =>
    Array.from({ length: count }, (_, i) => slotList[n]! * capacity + seen[n]! + i),
  );
  const integers = (list: readonly number[]): Tensor =>
    tensor(x.device, list, [list.length], { dtype: "int32" });
  const made = { lengths: integers(lengths), entries: integers(entries) };
  const plan = { ...made, slots, longest, sequences: { slotList, seen: [...seen], counts, capacity } };
  plans.set(seen, plan);
  return plan;
}

function isSame({ entries, sequences }: CallPlan, counts: readonly number[]): boolean {
  return (
    entries.layout.storage.alive &&
    sequences.counts.length === counts.length &&
    sequences.counts.every((count, n) => count === counts[n])
  );
}

/**
 * Where the tokens of a call go in the state that it carries; undefined where it carries none.
 *
 * @param slab Any of the slabs of the state.
 * @throws UnsupportedError for a state beside causal: false.
 */
export function cacheOf(stream: Stream, slab: () => Tensor): CachePlan | undefined {
  const { state, context, who } = stream;
  if (state === undefined || context.memory !== undefined) return undefined;
  if (context.causal) return planOf(stream, slab());
  throw new UnsupportedError(
    `[${who}] a state continues causal sequences: expected causal: true with a state, got causal: false`,
    "Call without a state to see everything at once.",
  );
}

/** Whether the call reads the cache: a single token always does, whatever the rows beside it have seen. */
export function hasPast({ isStep }: Stream, { sequences }: CachePlan): boolean {
  return isStep || sequences === undefined || sequences.seen.some((count) => count > 0);
}

/** Writes the tokens of a call `[B,T,H,W]` to a slab. */
export function keepTokens(plan: CachePlan, slab: Tensor, tokens: Tensor): void {
  noGrad(() => writeCache(slab, plan.entries, tokens));
}

/**
 * Attention of the tokens of a call to each other, or to a memory, or to what a state holds of their sequences and each
 * other; the state is extended by them.
 *
 * @param slabs Names the parts of the state that hold keys and values.
 */
export function attendStream(
  stream: Stream,
  slabs: () => CacheSlabs,
  inputs: StreamInputs,
  options: Choices,
): Tensor {
  const { context, cuSeqlens } = stream;
  if (context.memory !== undefined) return attendMemory(stream, inputs, options);
  const plan = cacheOf(stream, () => slabs().keys);
  if (plan === undefined)
    return attention({ ...inputs, cuSeqlens }, { ...options, causal: context.causal }).output;
  keepTokens(plan, slabs().keys, inputs.k);
  keepTokens(plan, slabs().values, inputs.v);
  if (!hasPast(stream, plan)) return attention({ ...inputs, cuSeqlens }, options).output;
  return attendPast(stream, plan, slabs(), inputs, options);
}

/** Attention to what slabs hold of every sequence, the tokens of the call among it. */
export function attendPast(
  stream: Stream,
  plan: CachePlan,
  slabs: CacheSlabs,
  inputs: StreamInputs,
  options: Choices,
): Tensor {
  const wantsGradients = isRecording() && Object.values(inputs).some((x: Tensor) => x.requiresGrad);
  const { sequences } = plan;
  if (sequences === undefined || (stream.cuSeqlens === undefined && !wantsGradients)) {
    return noGrad(() => attentionOverCache(inputs.q, slabs, plan, options));
  }
  return attendRagged({ ...sequences, longest: plan.longest }, slabs, inputs, options);
}

function attendMemory({ context, who }: Stream, { q, k, v }: StreamInputs, { scale }: Choices): Tensor {
  if (context.cuSeqlens !== undefined) {
    throw new UnsupportedError(
      `[${who}] packed sequences have no memory of their own: expected cuSeqlens or memory, got both`,
      "Give every sequence a batch row of its own.",
    );
  }
  const mask = context.memoryMask;
  const wantsGradients = isRecording() && (q.requiresGrad || k.requiresGrad || v.requiresGrad);
  if (q.shape[1] === 1 && !wantsGradients) return noGrad(() => attentionOfOne(q, k, v, { scale, mask }));
  return attention({ q, k, v, mask }, { scale, causal: false }).output;
}

/** Row-major rows of heads `[n, H·W]`. */
const rowsOf = (x: Tensor): Tensor =>
  reshape(x, [x.size / (x.shape.at(-1)! * x.shape.at(-2)!), x.shape.at(-1)! * x.shape.at(-2)!]);

/**
 * Sequences of different pasts and numbers of new tokens, laid out so that all end in the last column: what a row lacks
 * is hidden by a mask. Keys and values from before are constants, those of this call have gradients.
 */
function attendRagged(
  { seen, counts, slotList, capacity, longest }: Sequences & Pick<CacheView, "longest">,
  { keys, values }: CacheSlabs,
  { q, k, v }: StreamInputs,
  options: Choices,
): Tensor {
  const { device } = q;
  const integers = (list: readonly number[], shape: readonly number[] = [list.length]): Tensor =>
    tensor(device, list, shape, { dtype: "int32" });
  const rows = counts.length;
  const before = integers(
    seen.flatMap((count, n) => Array.from({ length: count }, (_, j) => slotList[n]! * capacity + j)),
  );
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  const own = gather(counts, most);
  if (own.back.length === 0) return attention({ q, k, v }).output;
  const pasts = gather(seen, longest);
  const layout = seen.flatMap((count, n) => {
    const first = before.size + own.first[n]!;
    const past = Array.from({ length: count }, (_, j) => pasts.first[n]! + j);
    const fresh = Array.from({ length: counts[n]! }, (_, i) => first + i);
    return [...new Array<number>(longest - count - counts[n]!).fill(-1), ...past, ...fresh];
  });
  const mask = integers(
    layout.map((id) => Number(id >= 0)),
    [rows, longest],
  );
  const ids = integers(layout.map((id) => Math.max(0, id)));
  const keyRows = (slab: Tensor, fresh: Tensor): Tensor => {
    const past = rowsOf(takeSlots(entriesOf(slab), before));
    return reshape(embedding(ids, concat([past, rowsOf(fresh)], 0)), [
      rows,
      longest,
      ...fresh.shape.slice(2),
    ]);
  };
  const queries = reshape(embedding(integers(own.ids), rowsOf(q)), [rows, most, ...q.shape.slice(2)]);
  const { output } = attention(
    { q: queries, k: keyRows(keys, k), v: keyRows(values, v), mask },
    { ...options, queryOffset: longest - most },
  );
  const taken = embedding(integers(own.back), rowsOf(output));
  return reshape(taken, [...q.shape.slice(0, 3), v.shape[3]!]);
}

/** Lists of `counts` items laid end to end, and the same as rows of `width` that all end in the last column. */
function gather(
  counts: readonly number[],
  width: number,
): { readonly first: readonly number[]; readonly ids: readonly number[]; readonly back: readonly number[] } {
  const first: number[] = [];
  const ids: number[] = [];
  const back: number[] = [];
  let from = 0;
  for (const [n, count] of counts.entries()) {
    first.push(from);
    for (let i = 0; i < width; i++) ids.push(Math.max(0, i - (width - count)) + (count === 0 ? 0 : from));
    for (let i = 0; i < count; i++) back.push(n * width + width - count + i);
    from += count;
  }
  return { first, ids, back };
}
