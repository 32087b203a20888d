import type { LanguageModel } from "../generate/language-model.ts";

/** What one token costs after a context. */
export interface DecodeRate {
  readonly model: string;
  readonly context: number;
  readonly microseconds: number;
  readonly stateBytes: number;
}

const rounds = 7;
const samplesARound = 9;

/** A model on its way through the contexts. */
interface Reader {
  readonly name: string;
  readonly model: LanguageModel;
  readonly slot: number;
}

/**
 * Really reads contexts of the given lengths, then times single tokens, each after exactly as much context: the best of
 * several rounds, of a round the median. Models take turns, so that what disturbs one disturbs the others as well.
 */
export function decodeRates(
  models: Readonly<Record<string, LanguageModel>>,
  contexts: readonly number[],
): DecodeRate[] {
  const readers = Object.entries(models).map(
    ([name, model]): Reader => ({ name, model, slot: model.takeSlot() }),
  );
  const rows = contexts.flatMap((context) => {
    for (const reader of readers) read(reader, context);
    const best = readers.map(() => Number.POSITIVE_INFINITY);
    for (let round = 0; round < rounds; round++)
      for (const [i, reader] of readers.entries()) best[i] = Math.min(best[i]!, medianAt(reader, context));
    return readers.map(({ name, model: { states } }, i) => ({
      ...{ model: name, context, microseconds: best[i]! },
      stateBytes: states.bytesPerSequence + states.bytesPerToken * context,
    }));
  });
  for (const { model, slot } of readers) model.giveSlot(slot);
  // A model's rows together.
  return readers.flatMap(({ name }) => rows.filter((row) => row.model === name));
}

const vocabularyOf = (model: LanguageModel): number => Math.min(256, model.decoder.config.vocabularySize);

function read({ model, slot }: Reader, context: number): void {
  for (let at = model.states.tokens(slot); at < context; ) {
    const length = Math.min(512, context - at);
    const ids = Int32Array.from({ length }, (_, i) => (31 * (at + i)) % vocabularyOf(model));
    model.advance([slot], ids, length);
    at += length;
  }
}

/** Microseconds of a token, the median of a few. A cache is cut back before each: none of them sees the others. */
function medianAt({ model, slot }: Reader, context: number): number {
  const times: number[] = [];
  for (let i = 0; i < samplesARound; i++) {
    model.states.place(slot, context);
    const began = performance.now();
    model.advance([slot], Int32Array.of(i % vocabularyOf(model)), 1);
    times.push((performance.now() - began) * 1000);
  }
  model.states.place(slot, context);
  return times.sort((a, b) => a - b)[(samplesARound - 1) / 2]!;
}
