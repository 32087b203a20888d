/** The text that a language model is trained on: in memory, or in a token file where it is larger than that. */
import { ConfigError } from "../errors.ts";
import { tokenizeLarge } from "../tasks/language-modelling/large-text.ts";
import { type TokenizedText, tokenizeText } from "../tasks/language-modelling/run.ts";
import { bytePair } from "../text/byte-pair.ts";
import { trainBytePair } from "../text/byte-pair-train.ts";
import { bytes } from "../text/bytes.ts";
import { characters } from "../text/characters.ts";
import { readDocuments } from "../text/corpus.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { beginningOf, readCorpus } from "./corpus.ts";

/** Where a text is and how it is held. */
export interface TextPlace {
  readonly path: string;
  /** Read from disk as it is needed. */
  readonly isStreamed: boolean;
}

/** Throws a ConfigError for a kind of tokenizer that there is not, before anything is read. */
export function checkTokenizer(kind: string): void {
  if (kind === "bytes" || kind === "characters" || /^bpe:\d+$/.test(kind)) return;
  throw new ConfigError(
    `[train] unknown tokenizer "${kind}": expected bytes, characters or bpe:VOCABULARY, such as bpe:2048`,
  );
}

/** The tokenizer of a kind for a text; byte pairs of a streamed text are learned from its beginning. */
export async function tokenizerFor(kind: string, { path, isStreamed }: TextPlace): Promise<Tokenizer> {
  checkTokenizer(kind);
  if (kind === "bytes") return bytes();
  if (kind === "characters") return characters(await charactersOf(path));
  const text = isStreamed ? await beginningOf(path) : (await readCorpus(path)).text;
  return bytePair(trainBytePair([text], Number(kind.slice(4))));
}

/** Every character of a text, in code point order. */
async function charactersOf(path: string): Promise<string[]> {
  const found = new Set<string>("\n");
  for await (const { text } of readDocuments(path)) for (const character of text) found.add(character);
  return [...found].sort((a, b) => a.codePointAt(0)! - b.codePointAt(0)!);
}

/**
 * The ids of a text and what of it is held out.
 *
 * @param file Where the ids of a streamed text lie, or will.
 */
export async function textFor(
  { path, isStreamed }: TextPlace,
  tokenizer: Tokenizer,
  heldOut: number,
  file: string,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void } = {},
): Promise<TokenizedText> {
  if (isStreamed) return tokenizeLarge(path, tokenizer, heldOut, file, options);
  return tokenizeText((await readCorpus(path)).text, tokenizer, heldOut);
}
