import { byteStream, type Tokenizer } from "./tokenizer.ts";

const encoder = new TextEncoder();
const separator = 256;

/**
 * The tokenizer whose ids are the bytes of UTF-8, and 256 between documents. It knows every text and needs no training.
 *
 * @example
 * const ids = bytes().encode("whale"); // Int32Array [119, 104, 97, 108, 101]
 */
export function bytes(): Tokenizer {
  const single = Array.from({ length: 257 }, (_, i) =>
    i === separator ? new Uint8Array(0) : Uint8Array.of(i),
  );
  return {
    vocabularySize: 257,
    separator,
    encode: (text) => Int32Array.from(encoder.encode(text)),
    decode: (ids) =>
      new TextDecoder("utf-8", { ignoreBOM: true }).decode(
        Uint8Array.from(Array.from(ids).filter((id) => id !== separator)),
      ),
    stream: () => byteStream((id) => single[id] ?? single[separator]!),
    toJSON: () => ({ kind: "bytes" }),
  };
}
