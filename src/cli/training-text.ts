/** The text that a language model is trained on: in memory, or in a token file where it is larger than that. */
import { tokenizeLarge, tokensOf } from "../tasks/language-modelling/large-text.ts";
import {
  type LearnedText,
  partedDocuments,
  tokenizeDocuments,
  tokenizeText,
} from "../tasks/language-modelling/texts.ts";
import type { LanguageTraining } from "../tasks/language-modelling/training.ts";
import { characters } from "../text/characters.ts";
import { readDocuments } from "../text/corpus.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { beginningOf, corpusOfRun, documentsOfRun, readCorpus } from "./corpus.ts";
import { tokenizerOf } from "./tokenizer-of.ts";

/** Where a text is and how it is held. */
export interface TextPlace {
  readonly path: string;
  /** Read from disk as it is needed. */
  readonly isStreamed: boolean;
}

const isMadeOfText = (kind: string): boolean => kind === "characters" || /^bpe:\d+$/.test(kind);

/** Throws for a tokenizer that there is not, before the text is read. */
export async function checkTokenizer(kind: string): Promise<void> {
  if (!isMadeOfText(kind)) await tokenizerOf(kind, "");
}

/** The tokenizer that `--tokenizer` asks for; byte pairs of a streamed text are learned from its beginning. */
export async function tokenizerFor(kind: string, { path, isStreamed }: TextPlace): Promise<Tokenizer> {
  if (kind === "characters") return characters(await charactersOf(path));
  if (!isMadeOfText(kind)) return tokenizerOf(kind, "");
  return tokenizerOf(kind, isStreamed ? await beginningOf(path) : (await readCorpus(path)).text);
}

/** Every character of a text, in code point order. */
async function charactersOf(path: string): Promise<string[]> {
  const found = new Set<string>("\n");
  for await (const { text } of readDocuments(path)) for (const character of text) found.add(character);
  return [...found].sort((a, b) => a.codePointAt(0)! - b.codePointAt(0)!);
}

/**
 * The ids of a text, or of its documents, and what of it is held out.
 *
 * @param file Where the ids of a streamed text lie, or will.
 */
export async function textFor(
  { path, isStreamed }: TextPlace,
  tokenizer: Tokenizer,
  { heldOut, documents }: Pick<LanguageTraining, "heldOut" | "documents">,
  file: string,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void } = {},
): Promise<LearnedText> {
  if (documents !== "joined") {
    return isStreamed
      ? partedDocuments(await tokensOf(path, tokenizer, file, options), tokenizer, heldOut)
      : tokenizeDocuments(documentsOfRun(path), tokenizer, heldOut);
  }
  if (isStreamed) return tokenizeLarge(path, tokenizer, heldOut, file, options);
  return tokenizeText((await corpusOfRun(path)).text, tokenizer, heldOut);
}
