import { ConfigError } from "../errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * The tokenizer whose ids are the characters (code points) that a text holds, in code point order.
 *
 * @throws ConfigError on encoding a character that is not among them.
 * @example
 * const tokenizer = characters("call me Ishmael");
 * console.log(tokenizer.vocabularySize); // 11
 */
export function characters(text: string | readonly string[]): Tokenizer {
  const list =
    typeof text === "string"
      ? [...new Set(text)].sort((a, b) => a.codePointAt(0)! - b.codePointAt(0)!)
      : text;
  const ids = new Map(list.map((character, id) => [character, id]));
  const encode = (input: string): Int32Array =>
    Int32Array.from([...input], (character) => {
      const id = ids.get(character);
      if (id === undefined) {
        throw new ConfigError(
          `[characters] ${JSON.stringify(character)} is not in the vocabulary of ${list.length} characters`,
          "Train on text that holds it, or use the bytes tokenizer, which knows every text.",
        );
      }
      return id;
    });
  return {
    vocabularySize: list.length,
    separator: undefined,
    encode,
    decode: (given) => Array.from(given, (id) => list[id] ?? "\uFFFD").join(""),
    stream: () => ({ push: (id) => list[id] ?? "\uFFFD", end: () => "" }),
    toJSON: () => ({ kind: "characters", characters: list }),
  };
}
