import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { tensor } from "../autograd/tensor.ts";
import { ConfigError } from "../errors.ts";
import type { SequenceToSequence } from "../models/sequence-to-sequence.ts";

/** How targets are written. */
export interface TranslateOptions {
  /** Id that a target begins with; it is not part of the result. */
  readonly begin: number;
  /** Id that ends a target; it is not part of the result. */
  readonly end: number;
  /** Ids of a target at most; 256 unless given. */
  readonly maxNewTokens?: number;
  readonly signal?: AbortSignal;
}

/**
 * The most likely target of every source, token by token.
 *
 * Sources are encoded once, side by side. The decoder carries its state; every step reads the whole memory, which costs
 * its length times the width of keys and values in every block.
 *
 * @throws ConfigError for an empty source, a decoder whose mixers carry no state, or a limit that is no number of tokens.
 * @example
 * const half = { vocabularySize: 16, width: 16, layers: 1, heads: 2 };
 * const translator = new SequenceToSequence({
 *   encoder: { ...half, pattern: ["softmax"] },
 *   decoder: { ...half, pattern: ["gated-delta"] },
 * });
 * initialize(translator, device, random);
 * const [first] = translate(translator, [[3, 4, 5]], { begin: 0, end: 1, maxNewTokens: 4 });
 * console.log(first!.length <= 4); // true
 */
export function translate(
  model: SequenceToSequence,
  sources: readonly ArrayLike<number>[],
  { begin, end, maxNewTokens = 256, signal }: TranslateOptions,
): number[][] {
  if (sources.length === 0) return [];
  if (sources.some((source) => source.length === 0))
    throw new ConfigError("[translate] a source has tokens: expected one or more, got none");
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1)
    throw new ConfigError(`[translate] maxNewTokens is a whole number >= 1, got ${maxNewTokens}`);
  const { device } = model.encoder.embedding.weight.value;
  const batch = sources.length;
  const states = model.createState(device, batch);
  try {
    return scope(device, () =>
      noGrad(() => {
        const { source, mask } = sideBySide(sources);
        const ids = (values: Int32Array, width: number) =>
          tensor(device, values, [batch, width], { dtype: "int32" });
        const memoryMask = ids(mask, mask.length / batch);
        const { memory } = model.encode(ids(source, mask.length / batch), { mask: memoryMask });
        const slots = Array.from(sources, (_, b) => b);
        const results = slots.map((): number[] => []);
        const next = new Int32Array(batch).fill(begin);
        const done = slots.map(() => false);
        for (let step = 0; step < maxNewTokens && done.includes(false); step++) {
          signal?.throwIfAborted();
          const best = scope(device, () => {
            const context = { state: { states, slots }, memory, memoryMask, lastOnly: true };
            return argmax(model.decoder.forward(ids(next, 1), context).logits.dataSync(), batch);
          });
          for (const [b, id] of best.entries()) {
            done[b] ||= id === end;
            if (!done[b]) results[b]!.push(id);
            next[b] = id;
          }
        }
        return results;
      }),
    );
  } finally {
    states.dispose();
  }
}

function sideBySide(sources: readonly ArrayLike<number>[]): { source: Int32Array; mask: Int32Array } {
  const time = sources.reduce((most, source) => Math.max(most, source.length), 1);
  const source = new Int32Array(sources.length * time);
  const mask = new Int32Array(sources.length * time);
  for (const [b, ids] of sources.entries()) {
    source.set(Array.from(ids), b * time);
    mask.fill(1, b * time, b * time + ids.length);
  }
  return { source, mask };
}

/** The place of the largest value in each of `rows` equal rows; ties to the first. */
function argmax(values: ArrayLike<number>, rows: number): number[] {
  const width = values.length / rows;
  return Array.from({ length: rows }, (_, row) => {
    let best = 0;
    for (let i = 1; i < width; i++) if (values[row * width + i]! > values[row * width + best]!) best = i;
    return best;
  });
}
