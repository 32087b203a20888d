import { ConfigError } from "../errors.ts";
import { pieces } from "./byte-pair.ts";

/** A pair of neighbouring ids as one number; ids stay far below 2^21. */
const pairKey = (left: number, right: number): number => left * 2_097_152 + right;

interface Words {
  /** Ids of every distinct piece, merged in place. */
  readonly ids: number[][];
  readonly counts: number[];
}

/**
 * Learns byte-pair merges from text: again and again the most frequent pair of neighbours becomes a new id
 * (Sennrich et al., arXiv 1508.07909v5, algorithm 1, on bytes; ties go to the pair of smallest ids).
 *
 * Pairs are counted once over distinct pieces, and a merge visits only pieces that hold the pair.
 *
 * @param texts Any iterable of documents, so that a corpus need not fit in one string.
 * @param vocabularySize Ids wanted: 256 bytes, one separator and the merges. Fewer come out when pairs run out.
 * @throws ConfigError when the vocabulary is smaller than 257.
 * @example
 * const tokenizer = bytePair(trainBytePair(["low lower lowest"], 260));
 */
export function trainBytePair(texts: Iterable<string>, vocabularySize: number): [number, number][] {
  if (!Number.isInteger(vocabularySize) || vocabularySize < 257) {
    throw new ConfigError(
      `[trainBytePair] the vocabulary holds 256 bytes and a separator: expected >= 257, got ${vocabularySize}`,
    );
  }
  const words = distinctPieces(texts);
  const counts = new Map<number, number>();
  const where = new Map<number, Set<number>>();
  for (const [word, ids] of words.ids.entries()) {
    for (let i = 0; i + 1 < ids.length; i++)
      count(counts, where, pairKey(ids[i]!, ids[i + 1]!), word, words.counts[word]!);
  }
  const queue = new PairQueue();
  for (const [key, amount] of counts) queue.push(key, amount);
  const merges: [number, number][] = [];
  while (merges.length < vocabularySize - 257) {
    const best = queue.pop(counts);
    if (best === undefined) break;
    const left = Math.floor(best / 2_097_152);
    const right = best % 2_097_152;
    const id = 257 + merges.length;
    merges.push([left, right]);
    const touched = new Set<number>();
    for (const word of where.get(best)!) merge(words, word, left, right, id, counts, where, touched);
    counts.delete(best);
    where.delete(best);
    for (const key of touched)
      if (key !== best && (counts.get(key) ?? 0) > 0) queue.push(key, counts.get(key)!);
  }
  return merges;
}

function distinctPieces(texts: Iterable<string>): Words {
  const amounts = new Map<string, number>();
  for (const text of texts)
    for (const piece of pieces(text)) amounts.set(piece, (amounts.get(piece) ?? 0) + 1);
  const encoder = new TextEncoder();
  const ids: number[][] = [];
  const counts: number[] = [];
  for (const [piece, amount] of amounts) {
    ids.push([...encoder.encode(piece)]);
    counts.push(amount);
  }
  return { ids, counts };
}

function count(
  counts: Map<number, number>,
  where: Map<number, Set<number>>,
  key: number,
  word: number,
  by: number,
): void {
  counts.set(key, (counts.get(key) ?? 0) + by);
  if (by < 0) return;
  const words = where.get(key);
  if (words === undefined) where.set(key, new Set([word]));
  else words.add(word);
}

/** Replaces the pair by `id` in one word: its pairs are uncounted, the word rewritten, its new pairs counted. */
function merge(
  words: Words,
  word: number,
  left: number,
  right: number,
  id: number,
  counts: Map<number, number>,
  where: Map<number, Set<number>>,
  touched: Set<number>,
): void {
  const ids = words.ids[word]!;
  const amount = words.counts[word]!;
  const next: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] === left && ids[i + 1] === right) {
      next.push(id);
      i++;
    } else next.push(ids[i]!);
  }
  if (next.length === ids.length) return;
  for (let i = 0; i + 1 < ids.length; i++) {
    const key = pairKey(ids[i]!, ids[i + 1]!);
    count(counts, where, key, word, -amount);
    touched.add(key);
  }
  for (let i = 0; i + 1 < next.length; i++) {
    const key = pairKey(next[i]!, next[i + 1]!);
    count(counts, where, key, word, amount);
    touched.add(key);
  }
  words.ids[word] = next;
}

/** A heap of pairs by count whose entries may be out of date: a popped one counts only if its count still holds. */
class PairQueue {
  private readonly keys: number[] = [];
  private readonly amounts: number[] = [];

  push(key: number, amount: number): void {
    let i = this.keys.length;
    this.keys.push(key);
    this.amounts.push(amount);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!this.before(i, parent)) break;
      this.swap(i, parent);
      i = parent;
    }
  }

  /** The most frequent pair that still has its count, and occurs more than once. */
  pop(counts: ReadonlyMap<number, number>): number | undefined {
    while (this.keys.length > 0) {
      const key = this.keys[0]!;
      const amount = this.amounts[0]!;
      this.removeFirst();
      if (amount < 2) return undefined;
      if (counts.get(key) === amount) return key;
    }
    return undefined;
  }

  private before(i: number, j: number): boolean {
    const difference = this.amounts[i]! - this.amounts[j]!;
    return difference > 0 || (difference === 0 && this.keys[i]! < this.keys[j]!);
  }

  private swap(i: number, j: number): void {
    [this.keys[i], this.keys[j]] = [this.keys[j]!, this.keys[i]!];
    [this.amounts[i], this.amounts[j]] = [this.amounts[j]!, this.amounts[i]!];
  }

  private removeFirst(): void {
    const last = this.keys.length - 1;
    this.swap(0, last);
    this.keys.pop();
    this.amounts.pop();
    for (let i = 0; ; ) {
      let first = i;
      for (const child of [2 * i + 1, 2 * i + 2])
        if (child < last && this.before(child, first)) first = child;
      if (first === i) return;
      this.swap(i, first);
      i = first;
    }
  }
}
