import { ConfigError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";
import type { BatchShape, TokenBatch } from "./batches.ts";

/** Documents by number, each an array of ids: an array of them, or an open token file. */
export interface DocumentSource {
  readonly documents: number;
  document(i: number): Int32Array;
}

/** A batch whose rows hold documents. */
export interface DocumentBatch extends TokenBatch {
  /** `[B, T]`, 1 for tokens and 0 for padding: rows of one document each. */
  readonly mask?: Int32Array;
  /** `[N+1]`, where documents begin and end in a batch of one row. */
  readonly cuSeqlens?: Int32Array;
}

/** Documents that are in memory. */
export function documentsOf(documents: readonly Int32Array[]): DocumentSource {
  return { documents: documents.length, document: (i) => documents[i]! };
}

const unasked = -100;

/**
 * A document a row, drawn at random: the first `time` + 1 tokens of a long one, padding behind a short one. Rows are as
 * long as the longest document among them, so that batches of short documents cost little.
 *
 * @throws ConfigError where no document has two tokens.
 */
export function documentRows(
  source: DocumentSource,
  { batch, time }: BatchShape,
  random: Random,
): (step: number) => DocumentBatch {
  const usable = usableDocuments("documentRows", source);
  return (step) => {
    const draw = random.fork(`documents ${step}`).integers(new Int32Array(batch), 0, usable.length);
    const rows = Array.from(draw, (i) => source.document(usable[i]!).subarray(0, time + 1));
    const longest = rows.reduce((most, row) => Math.max(most, row.length - 1), 0);
    const inputs = new Int32Array(batch * longest);
    const targets = new Int32Array(batch * longest).fill(unasked);
    const mask = new Int32Array(batch * longest);
    for (const [b, row] of rows.entries()) {
      const count = row.length - 1;
      inputs.set(row.subarray(0, count), b * longest);
      targets.set(row.subarray(1), b * longest);
      mask.fill(1, b * longest, b * longest + count);
    }
    return { inputs, targets, mask, batch, time: longest };
  };
}

/**
 * Documents packed one after another in one row of `time` tokens, none seeing another: no padding at all. Documents come
 * in an order of their own every pass; one that does not fit is cut and goes on in the next batch as a document of its own.
 *
 * @throws ConfigError where no document has two tokens.
 */
export function packedDocuments(
  source: DocumentSource,
  time: number,
  random: Random,
): (step: number) => DocumentBatch {
  const usable = usableDocuments("packedDocuments", source);
  const lengths = usable.map((i) => source.document(i).length - 1);
  const perPass = lengths.reduce((sum, length) => sum + length, 0);
  return (step) => {
    const inputs = new Int32Array(time);
    const targets = new Int32Array(time);
    const bounds = [0];
    let filled = 0;
    while (filled < time) {
      const place = step * time + filled;
      const pass = Math.floor(place / perPass);
      const order = orderOf(random, pass, usable.length);
      let within = place - pass * perPass;
      let rank = 0;
      while (within >= lengths[order[rank]!]!) within -= lengths[order[rank++]!]!;
      for (; rank < order.length && filled < time; rank++, within = 0) {
        const ids = source.document(usable[order[rank]!]!);
        const count = Math.min(ids.length - 1 - within, time - filled);
        inputs.set(ids.subarray(within, within + count), filled);
        targets.set(ids.subarray(within + 1, within + 1 + count), filled);
        filled += count;
        bounds.push(filled);
      }
    }
    return { inputs, targets, cuSeqlens: Int32Array.from(bounds), batch: 1, time };
  };
}

const orders = new WeakMap<Random, { readonly pass: number; readonly order: Int32Array }>();

/** The order of a pass; the last one asked for is kept. */
function orderOf(random: Random, pass: number, count: number): Int32Array {
  const kept = orders.get(random);
  if (kept?.pass === pass && kept.order.length === count) return kept.order;
  const order = random.fork(`pass ${pass}`).permutation(count);
  orders.set(random, { pass, order });
  return order;
}

function usableDocuments(who: string, source: DocumentSource): number[] {
  const usable: number[] = [];
  for (let i = 0; i < source.documents; i++) if (source.document(i).length >= 2) usable.push(i);
  if (usable.length > 0) return usable;
  throw new ConfigError(
    `[${who}] a document has a token and the next: expected one of two or more, got none`,
  );
}
