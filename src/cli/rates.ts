import type { LanguageModel } from "../generate/language-model.ts";

/** What one token costs after a context. */
export interface DecodeRate {
  readonly model: string;
  readonly context: number;
  readonly microseconds: number;
  readonly stateBytes: number;
}

const samples = 24;

/** Really reads contexts of the given lengths, then times single tokens: the median of a few. */
export function decodeRates(name: string, model: LanguageModel, contexts: readonly number[]): DecodeRate[] {
  const slot = model.takeSlot();
  const vocabulary = Math.min(256, model.decoder.config.vocabularySize);
  const rows: DecodeRate[] = [];
  let position = 0;
  for (const context of contexts) {
    while (position < context) {
      const length = Math.min(512, context - position);
      const ids = Int32Array.from({ length }, (_, i) => (31 * (position + i)) % vocabulary);
      model.advance([slot], ids, length);
      position += length;
    }
    const times: number[] = [];
    for (let i = 0; i < samples; i++) {
      const began = performance.now();
      model.advance([slot], Int32Array.of(i % vocabulary), 1);
      times.push((performance.now() - began) * 1000);
      position++;
    }
    times.sort((a, b) => a - b);
    const { states } = model;
    rows.push({
      model: name,
      context,
      microseconds: times[samples / 2]!,
      stateBytes: states.bytesPerSequence + states.bytesPerToken * context,
    });
  }
  model.giveSlot(slot);
  return rows;
}
