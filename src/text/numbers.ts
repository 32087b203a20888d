import { ConfigError } from "../errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * Ids written as numbers with blanks between them: what speaks to a model that came without a tokenizer.
 *
 * @example
 * ```ts
 * import { numbers } from "linnet/text";
 *
 * console.log(numbers(160).encode("12 7 159"));
 * ```
 */
export function numbers(vocabularySize: number): Tokenizer {
  return {
    vocabularySize,
    separator: undefined,
    encode: (text) => {
      const words = text.split(/[\s,]+/).filter((word) => word !== "");
      return Int32Array.from(words, (word) => {
        const id = Number(word);
        if (/^\d+$/.test(word) && id < vocabularySize) return id;
        throw new ConfigError(
          `[numbers] the model has no tokenizer, so its text is ids: expected numbers from 0 to ${vocabularySize - 1}, got ${JSON.stringify(word)}`,
          "Put the model's tokenizer.json beside its weights to write words.",
        );
      });
    },
    decode: (ids) => Array.from(ids).join(" "),
    stream: () => ({ push: (id) => ` ${id}`, end: () => "" }),
    toJSON: () => ({ kind: "numbers", vocabularySize }),
  };
}
