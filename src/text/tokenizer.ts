/** What every tokenizer does: text to ids of a vocabulary and back, also piece by piece. */
export interface Tokenizer {
  /** Ids are 0 … vocabularySize − 1. */
  readonly vocabularySize: number;
  /** The id that parts documents, where the vocabulary has one. */
  readonly separator: number | undefined;
  /**
   * Ids of a text.
   *
   * @throws ConfigError when the text holds what the vocabulary cannot express; byte vocabularies express all.
   */
  encode(text: string): Int32Array;
  /** The text of ids; bytes that make no character become U+FFFD. */
  decode(ids: ArrayLike<number>): string;
  /** Decodes a stream: a character that is not complete waits for its rest. */
  stream(): TextStream;
  /** Plain data from which `tokenizerFrom` makes the same tokenizer. */
  toJSON(): TokenizerData;
}

/** A tokenizer as plain data. */
export type TokenizerData =
  | { readonly kind: "bytes" }
  | { readonly kind: "characters"; readonly characters: readonly string[] }
  | { readonly kind: "byte-pair"; readonly merges: readonly (readonly [number, number])[] }
  | { readonly kind: "numbers"; readonly vocabularySize: number }
  | { readonly kind: "hugging-face"; readonly tokenizer: unknown; readonly config: unknown };

/** Text that grows token by token. */
export interface TextStream {
  /** The characters that this id completes; empty while one is still incomplete. */
  push(id: number): string;
  /** What is left at the end; incomplete characters become U+FFFD. */
  end(): string;
}

/** Streams bytes as characters, for tokenizers whose ids stand for bytes. */
export function byteStream(bytesOf: (id: number) => Uint8Array): TextStream {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return {
    push: (id) => decoder.decode(bytesOf(id), { stream: true }),
    end: () => decoder.decode(),
  };
}
