/** Models to generate with: small ones with random weights, and one that writes what it is told. */
import { type Device, openWasm } from "../../src/device/index.ts";
import { LanguageModel } from "../../src/generate/index.ts";
import type { DecoderConfig } from "../../src/models/config.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";
import { bytes } from "../../src/text/bytes.ts";
import { characters } from "../../src/text/characters.ts";
import type { Tokenizer } from "../../src/text/tokenizer.ts";

export const device: Device = await openWasm({ threads: 1 });

/** A model with random weights large enough that its next tokens are not all alike. */
export function modelOf(
  config: Partial<DecoderConfig>,
  tokenizer: Tokenizer = bytes(),
  seed = 1,
): LanguageModel {
  const decoder = new Decoder({
    ...{ vocabularySize: tokenizer.vocabularySize, width: 16, layers: 2, heads: 2, pattern: ["gated-delta"] },
    ...{ initDeviation: 1, ...config },
  });
  initialize(decoder, device, new Random(seed));
  return new LanguageModel(decoder, tokenizer, device);
}

/** A model over few letters: small enough to try every text. */
export function fewLetters(letters: string, config: Partial<DecoderConfig> = {}, seed = 1): LanguageModel {
  return modelOf({ width: 8, layers: 1, ...config }, characters(letters), seed);
}

/** A model that writes a text, byte by byte, and then parts documents for ever. */
class Scripted extends LanguageModel {
  readonly #script: Uint8Array;
  readonly #begin: number;

  constructor(model: LanguageModel, script: string, begin: number) {
    super(model.decoder, model.tokenizer, model.device);
    this.#script = new TextEncoder().encode(script);
    this.#begin = begin;
  }

  override advance(slots: readonly number[], ids: Int32Array, length = 1): Float32Array[] {
    super.advance(slots, ids, length);
    return slots.map((slot) => {
      const logits = new Float32Array(257);
      logits[this.#script[this.states.tokens(slot) - this.#begin] ?? 256] = 50;
      return logits;
    });
  }
}

/** Writes `script` after a prompt of `begin` tokens. */
export function writerOf(script: string, begin: number): LanguageModel {
  return new Scripted(modelOf({ layers: 1 }), script, begin);
}

/**
 * How far counts are from what is expected: Σ (seen − expected)² / expected, with all that is expected less than five
 * times as one, and the value that 99.9 % of honest draws stay below (Wilson and Hilferty, 1931).
 */
export function chiSquare(
  counts: ReadonlyMap<string, number>,
  expected: ReadonlyMap<string, number>,
): { readonly found: number; readonly bound: number } {
  const cells: { seen: number; wanted: number }[] = [];
  const rare = { seen: 0, wanted: 0 };
  for (const [key, wanted] of expected) {
    const seen = counts.get(key) ?? 0;
    if (wanted >= 5) cells.push({ seen, wanted });
    else {
      rare.seen += seen;
      rare.wanted += wanted;
    }
  }
  if (rare.wanted > 0) cells.push(rare);
  let found = [...counts.keys()].every((key) => expected.has(key)) ? 0 : Number.POSITIVE_INFINITY;
  for (const { seen, wanted } of cells) found += (seen - wanted) ** 2 / wanted;
  const degrees = cells.length - 1;
  return { found, bound: degrees * (1 - 2 / (9 * degrees) + 3.09 * Math.sqrt(2 / (9 * degrees))) ** 3 };
}
