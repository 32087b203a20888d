import { FormatError } from "../errors.ts";
import { bytePair } from "./byte-pair.ts";
import { bytes } from "./bytes.ts";
import { characters } from "./characters.ts";
import { numbers } from "./numbers.ts";
import type { Tokenizer, TokenizerData } from "./tokenizer.ts";

/**
 * The tokenizer that was written with `toJSON`. Those of Hugging Face load a library first: `loadTokenizer` makes them.
 *
 * @throws FormatError when the data is none of the known kinds.
 */
export function tokenizerFrom(data: TokenizerData): Tokenizer {
  if (data.kind === "bytes") return bytes();
  if (data.kind === "characters") return characters(data.characters);
  if (data.kind === "byte-pair") return bytePair(data.merges);
  if (data.kind === "numbers") return numbers(data.vocabularySize);
  throw new FormatError(
    `[tokenizer] unknown kind: expected bytes, characters, byte-pair or numbers, got ${JSON.stringify((data as { kind?: unknown }).kind)}`,
  );
}
