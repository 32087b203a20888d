import { ConfigError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";
import type { BatchShape, TokenBatch } from "./batches.ts";

/** Documents by number, each an array of ids: an array of them, or an open token file. */
export interface DocumentSource {
  readonly documents: number;
  document(i: number): Int32Array;
  /** Ids of a document, where they need not be read to be counted. */
  documentLength?(i: number): number;
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

/** Documents [from, to) of a source, each with the separator at its end that says so, if there is one. */
export function endedDocuments(
  source: DocumentSource,
  separator: number | undefined,
  from = 0,
  to = source.documents,
): DocumentSource {
  const more = separator === undefined ? 0 : 1;
  return {
    documents: to - from,
    document: (i) => {
      const ids = source.document(from + i);
      if (separator === undefined) return ids;
      const ended = new Int32Array(ids.length + 1).fill(separator);
      ended.set(ids);
      return ended;
    },
    documentLength: (i) => lengthOf(source, from + i) + more,
  };
}

const lengthOf = (source: DocumentSource, i: number): number =>
  source.documentLength?.(i) ?? source.document(i).length;

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
    return padded(Array.from(draw, (i) => source.document(usable[i]!).subarray(0, time + 1)));
  };
}

/**
 * Every document once, in pieces of at most `time` + 1 tokens that do not see each other, pieces of like length together;
 * each piece begins with the token that the one before it ended with.
 */
export function* evaluationDocuments(
  source: DocumentSource,
  { batch, time }: BatchShape,
): Generator<DocumentBatch> {
  const pieces: Int32Array[] = [];
  for (const i of usableDocuments("evaluationDocuments", source)) {
    const ids = source.document(i);
    for (let from = 0; from + 1 < ids.length; from += time) pieces.push(ids.subarray(from, from + time + 1));
  }
  pieces.sort((a, b) => a.length - b.length);
  for (let from = 0; from < pieces.length; from += batch) yield padded(pieces.slice(from, from + batch));
}

function padded(rows: readonly Int32Array[]): DocumentBatch {
  const batch = rows.length;
  const time = rows.reduce((most, row) => Math.max(most, row.length - 1), 0);
  const inputs = new Int32Array(batch * time);
  const targets = new Int32Array(batch * time).fill(unasked);
  const mask = new Int32Array(batch * time);
  for (const [b, row] of rows.entries()) {
    const count = row.length - 1;
    inputs.set(row.subarray(0, count), b * time);
    targets.set(row.subarray(1), b * time);
    mask.fill(1, b * time, b * time + count);
  }
  return { inputs, targets, mask, batch, time };
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
  const lengths = usable.map((i) => lengthOf(source, i) - 1);
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
  for (let i = 0; i < source.documents; i++) if (lengthOf(source, i) >= 2) usable.push(i);
  if (usable.length > 0) return usable;
  throw new ConfigError(
    `[${who}] a document has a token and the next: expected one of two or more, got none`,
  );
}
