import { FormatError } from "../errors.ts";
import { byteStream, type Tokenizer } from "./tokenizer.ts";

/** Words with the blank before them, numbers, signs, and runs of blanks: merges never cross these borders. */
const border = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** The pieces of a text, which concatenated are the text again. */
export function pieces(text: string): Iterable<string> {
  return text.match(border) ?? [];
}

const separator = 256;

/**
 * The tokenizer that merges made: ids 0 … 255 are bytes, 256 parts documents, and 257 + i is merge i.
 *
 * @throws FormatError when a merge joins ids that do not exist before it.
 * @example
 * const tokenizer = bytePair(trainBytePair([text], 4096));
 */
export function bytePair(merges: readonly (readonly [number, number])[]): Tokenizer {
  const bytesOf: Uint8Array[] = Array.from({ length: 256 }, (_, i) => Uint8Array.of(i));
  bytesOf.push(new Uint8Array(0));
  const ranks = new Map<number, number>();
  for (const [rank, [left, right]] of merges.entries()) {
    const a = bytesOf[left];
    const b = bytesOf[right];
    if (a === undefined || b === undefined || left === separator || right === separator) {
      throw new FormatError(
        `[bytePair] merge ${rank} joins ids made before it: expected < ${257 + rank}, got ${left} and ${right}`,
      );
    }
    const joined = new Uint8Array(a.length + b.length);
    joined.set(a);
    joined.set(b, a.length);
    bytesOf.push(joined);
    ranks.set(left * 2_097_152 + right, rank);
  }
  const encoder = new TextEncoder();
  const cache = new Map<string, readonly number[]>();
  const encodePiece = (piece: string): readonly number[] => {
    const known = cache.get(piece);
    if (known !== undefined) return known;
    const ids = [...encoder.encode(piece)];
    while (joinBest(ids, ranks));
    // Text that never repeats must not grow the memory without end.
    if (cache.size > 100_000) cache.clear();
    cache.set(piece, ids);
    return ids;
  };
  return {
    vocabularySize: bytesOf.length,
    separator,
    encode: (text) => {
      const ids: number[] = [];
      for (const piece of pieces(text)) for (const id of encodePiece(piece)) ids.push(id);
      return Int32Array.from(ids);
    },
    decode: (ids) => {
      const stream = byteStream((id) => bytesOf[id] ?? bytesOf[separator]!);
      return Array.from(ids, (id) => stream.push(id)).join("") + stream.end();
    },
    stream: () => byteStream((id) => bytesOf[id] ?? bytesOf[separator]!),
    toJSON: () => ({ kind: "byte-pair", merges }),
  };
}

/** Joins every occurrence of the earliest merge that applies; false when none does. */
function joinBest(ids: number[], ranks: ReadonlyMap<number, number>): boolean {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i + 1 < ids.length; i++)
    best = Math.min(best, ranks.get(ids[i]! * 2_097_152 + ids[i + 1]!) ?? best);
  if (best === Number.POSITIVE_INFINITY) return false;
  let to = 0;
  for (let from = 0; from < ids.length; from++, to++) {
    if (from + 1 < ids.length && ranks.get(ids[from]! * 2_097_152 + ids[from + 1]!) === best) {
      ids[to] = 257 + best;
      from++;
    } else ids[to] = ids[from]!;
  }
  ids.length = to;
  return true;
}
