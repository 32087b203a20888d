/** What a language model learns from: one text, or documents that do not see each other. */
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import { Random } from "../../tensor/random.ts";
import { randomWindows, runningWindows, type TokenBatch } from "../../text/batches.ts";
import type { TextPiece } from "../../text/corpus.ts";
import {
  type DocumentBatch,
  type DocumentSource,
  documentRows,
  documentsOf,
  endedDocuments,
  evaluationDocuments,
  packedDocuments,
} from "../../text/document-batches.ts";
import type { TokenSource } from "../../text/token-file.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { Task } from "../../train/loop.ts";
import { scoreBatches, scoreText, type TextScore } from "./index.ts";
import type { LanguageTraining } from "./training.ts";

/** A text as ids: what is trained on and what is held out. */
export interface TokenizedText {
  readonly train: TokenSource;
  readonly heldOut: Int32Array;
  readonly heldOutBytes: number;
}

/** Documents as ids, each with its end: those that are trained on and those that are held out. */
export interface TokenizedDocuments {
  readonly documents: DocumentSource;
  readonly heldOutDocuments: DocumentSource;
}

/** Either of the two. */
export type LearnedText = TokenizedText | TokenizedDocuments;

/** Cuts a text in two at a line's end and tokenizes both. */
export function tokenizeText(text: string, tokenizer: Tokenizer, share: number): TokenizedText {
  const near = Math.floor(text.length * (1 - share));
  const line = text.indexOf("\n", near);
  const cut = line < 0 ? near : line + 1;
  const heldOut = text.slice(cut);
  return {
    train: tokenizer.encode(text.slice(0, cut)),
    heldOut: tokenizer.encode(heldOut),
    heldOutBytes: new TextEncoder().encode(heldOut).length,
  };
}

/** Tokenizes documents; the last ones are held out. */
export async function tokenizeDocuments(
  pieces: AsyncIterable<TextPiece>,
  tokenizer: Tokenizer,
  share: number,
): Promise<TokenizedDocuments> {
  const documents: Int32Array[] = [];
  let begun: string[] = [];
  for await (const { text, ends } of pieces) {
    begun.push(text);
    if (!ends) continue;
    documents.push(tokenizer.encode(begun.join("")));
    begun = [];
  }
  return partedDocuments(documentsOf(documents), tokenizer, share);
}

/** Tokens that are held out at most: more make the score no better. */
export const mostHeldOut = 1_000_000;

/** Throws a ConfigError where there are not enough documents to learn from and to be scored on. */
export function checkDocuments(count: number): void {
  if (count >= 2) return;
  throw new ConfigError(
    `[train] documents by themselves are some to learn from and one to be scored on: expected two or more, got ${count}`,
    "A folder has a document a file, a .jsonl file one a line; --documents joined takes a single text.",
  );
}

/**
 * The last documents, a share of the tokens or a million of them, are held out.
 *
 * @throws ConfigError for fewer than two documents.
 */
export function partedDocuments(
  source: DocumentSource,
  { separator }: Tokenizer,
  share: number,
): TokenizedDocuments {
  const count = source.documents;
  checkDocuments(count);
  const lengths = Array.from(
    { length: count },
    (_, i) => source.documentLength?.(i) ?? source.document(i).length,
  );
  const wanted = Math.min(mostHeldOut, share * lengths.reduce((sum, length) => sum + length, 0));
  let cut = count - 1;
  for (let held = lengths[cut]!; cut > 1 && held + lengths[cut - 1]! <= wanted; ) held += lengths[--cut]!;
  return {
    documents: endedDocuments(source, separator, 0, cut),
    heldOutDocuments: endedDocuments(source, separator, cut),
  };
}

/** The batch of every step. */
export function batchesOf(
  text: TokenSource | LearnedText,
  { batch, time, seed, carry, documents }: LanguageTraining,
): (step: number) => DocumentBatch {
  const random = new Random(seed, "batches");
  if ("documents" in text) {
    return documents === "packed"
      ? packedDocuments(text.documents, batch * time, random)
      : documentRows(text.documents, { batch, time }, random);
  }
  const ids = "train" in text ? text.train : text;
  return carry ? runningWindows(ids, { batch, time }) : randomWindows(ids, { batch, time }, random);
}

/** Whether something is held out that can be scored. */
export function isScored(text: LearnedText, { time }: LanguageTraining): boolean {
  return "heldOutDocuments" in text || text.heldOut.length > time;
}

/** How well the held-out part is predicted. */
export function scoreHeldOut(
  text: LearnedText,
  task: Task<TokenBatch>,
  device: Device,
  tokenizer: Tokenizer,
  { batch, time, documents }: LanguageTraining,
): Promise<TextScore> {
  const shape = { batch, time };
  if (!("heldOutDocuments" in text)) return scoreText(task, device, text.heldOut, text.heldOutBytes, shape);
  // Rows of one document are its beginning, in training and here.
  const { heldOutDocuments: held } = text;
  const longest = documents === "rows" ? time + 1 : undefined;
  const scored = Array.from({ length: held.documents }, (_, i) => held.document(i).subarray(0, longest));
  const bytes = scored.reduce(
    (sum, ids) => sum + new TextEncoder().encode(tokenizer.decode(ids.subarray(1))).length,
    0,
  );
  return scoreBatches(task, device, [...evaluationDocuments(documentsOf(scored), shape)], bytes);
}
