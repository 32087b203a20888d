import { FormatError, UnsupportedError } from "../errors.ts";
import type { Tokenizer, TokenizerData } from "./tokenizer.ts";
import { tokenizerFrom } from "./tokenizer-from.ts";

/**
 * What to do where a library that may be left out of an installation is not there. It belongs right behind `import()`:
 * bundlers then let the library be missing, and say so instead of ending.
 */
export function missing(name: string): (cause: unknown) => never {
  return (cause) => {
    throw new UnsupportedError(
      `[tokenizer] ${name} is not installed: expected it beside linnet, got ${(cause as Error).message}`,
      `npm install ${name}`,
    );
  };
}

/** Options of `huggingFaceTokenizer`. */
export interface HuggingFaceOptions {
  /** The id that ends a text; what tokenizer_config.json calls eos_token unless given. */
  readonly separator?: number | undefined;
}

/**
 * The tokenizer of a `tokenizer.json`, run by @huggingface/tokenizers.
 *
 * @param tokenizer The parsed `tokenizer.json`.
 * @param config The parsed `tokenizer_config.json`; empty where there is none.
 * @throws FormatError for data that describes no tokenizer, UnsupportedError where the library is not installed.
 */
export async function huggingFaceTokenizer(
  tokenizer: unknown,
  config: unknown = {},
  options: HuggingFaceOptions = {},
): Promise<Tokenizer> {
  const library = await import("@huggingface/tokenizers").catch(missing("@huggingface/tokenizers"));
  let own: InstanceType<typeof library.Tokenizer>;
  try {
    own = new library.Tokenizer(tokenizer as object, config as object);
  } catch (cause) {
    throw new FormatError(
      `[tokenizer] tokenizer.json describes no tokenizer: ${(cause as Error).message}`,
      undefined,
      { cause },
    );
  }
  let largest = -1;
  for (const id of own.get_vocab(true).values()) largest = Math.max(largest, id);
  const separator = options.separator ?? ownSeparator(config, (word) => own.token_to_id(word));
  const decode = (ids: readonly number[]): string =>
    ids.length === 0 ? "" : own.decode([...ids], { skip_special_tokens: true });
  return {
    vocabularySize: largest + 1,
    separator,
    encode: (text) => Int32Array.from(own.encode(text).ids),
    decode: (ids) => decode(Array.from(ids)),
    stream: () => growingText(decode),
    toJSON: () => ({ kind: "hugging-face", tokenizer, config }),
  };
}

function ownSeparator(config: unknown, idOf: (word: string) => number | undefined): number | undefined {
  const token = (config as { eos_token?: string | { content?: string } } | undefined)?.eos_token;
  const word = typeof token === "string" ? token : token?.content;
  return word === undefined ? undefined : idOf(word);
}

/** Ids may belong to parts of a character or of a word: what stands at the end may change until more comes. */
function growingText(decode: (ids: readonly number[]) => string): ReturnType<Tokenizer["stream"]> {
  let ids: number[] = [];
  let shown = 0;
  return {
    push: (id) => {
      ids.push(id);
      const text = decode(ids);
      if (text.endsWith("\uFFFD")) return "";
      const piece = text.slice(shown);
      shown = text.length;
      // A new line is a place to begin anew, so that a stream of hours does not decode all of it for every token.
      if (text.endsWith("\n") && ids.length > 64) {
        ids = [];
        shown = 0;
      }
      return piece;
    },
    end: () => decode(ids).slice(shown),
  };
}

/**
 * The tokenizer that was written with `toJSON`, those of Hugging Face included.
 *
 * @throws FormatError and UnsupportedError as `tokenizerFrom` and `huggingFaceTokenizer`.
 */
export async function loadTokenizer(data: TokenizerData): Promise<Tokenizer> {
  return data.kind === "hugging-face"
    ? huggingFaceTokenizer(data.tokenizer, data.config)
    : tokenizerFrom(data);
}
