import { nodeFiles } from "../../checkpoint/node-files.ts";
import { readDocuments } from "../../text/corpus.ts";
import { openTokens, type TokenFile, writeTokens } from "../../text/token-file.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { mostHeldOut, type TokenizedText } from "./texts.ts";

/** A text whose ids lie in a file. */
export interface LargeText extends TokenizedText {
  readonly file: TokenFile;
}

/**
 * A corpus of any size as ids: a token file is written once and read from there on, so memory does not grow with the
 * corpus. The end of it, a share or a million tokens, is held out.
 *
 * @param file Where the ids lie, or will.
 * @throws What `readDocuments`, `writeTokens` and `openTokens` throw.
 */
export async function tokenizeLarge(
  path: string,
  tokenizer: Tokenizer,
  share: number,
  file: string,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void } = {},
): Promise<LargeText> {
  const source = await tokensOf(path, tokenizer, file, options);
  const cut = source.length - Math.min(mostHeldOut, Math.floor(source.length * share));
  const heldOut = source.subarray(cut);
  return {
    train: { length: cut, subarray: (from, to) => source.subarray(from, Math.min(to, cut)) },
    heldOut,
    heldOutBytes: new TextEncoder().encode(tokenizer.decode(heldOut)).length,
    file: source,
  };
}

/**
 * The token file of a corpus, written where it is not there yet.
 *
 * @throws What `readDocuments`, `writeTokens` and `openTokens` throw.
 */
export async function tokensOf(
  path: string,
  tokenizer: Tokenizer,
  file: string,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void } = {},
): Promise<TokenFile> {
  const files = await nodeFiles("large text");
  const isThere = await files.access(file).then(
    () => true,
    () => false,
  );
  if (!isThere) await writeTokens(file, readDocuments(path), tokenizer, options);
  return openTokens(file);
}
