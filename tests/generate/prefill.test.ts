import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { LanguageModel } from "../../src/generate/index.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import type { MixerChoice } from "../../src/models/config.ts";
import { characters } from "../../src/text/characters.ts";
import { modelOf } from "./models.ts";

const T = 40;
const [layers, width, hidden] = [2, 16, 43];

/**
 * Two orders of summing the same float32 terms: each layer's projections, its feed-forward, the T tokens of K channels
 * that its state adds up, and the output layer.
 */
const terms = layers * (4 * width + 3 * hidden + T * (width / 2)) + width;
const bound = 2 * 8 * 2 ** -24 * Math.sqrt(terms);

function relativeRms(got: Float32Array, wanted: Float32Array): number {
  let [error, size] = [0, 0];
  for (const [i, value] of wanted.entries()) {
    error += (got[i]! - value) ** 2;
    size += value ** 2;
  }
  return Math.sqrt(error / size);
}

/** Logits after reading in pieces of these lengths. */
function logitsIn(model: LanguageModel, ids: Int32Array, lengths: readonly number[]): Float32Array {
  const slot = model.takeSlot();
  let from = 0;
  let logits: Float32Array | undefined;
  for (const length of lengths) {
    logits = model.advance([slot], ids.slice(from, from + length), length)[0]!;
    from += length;
  }
  model.giveSlot(slot);
  return logits!;
}

const tokenizer = characters("abcdefghijklmnopqrstu");

function streams(pattern: readonly MixerChoice[]): boolean {
  const model = modelOf({ pattern }, tokenizer);
  const { decoder } = model;
  const carries = decoder.mixers.every(({ carriesState }) => carriesState);
  model.dispose();
  return carries;
}

const patterns: readonly (readonly MixerChoice[])[] = [
  ...mechanisms.filter(({ traits }) => traits.causal).map(({ id }) => [id]),
  ["gated-delta", "softmax"],
  ["kda", "latent-attention"],
  ["lightning", { id: "softmax", keyValueHeads: 1 }],
  [{ id: "linear", rotaryBase: 10_000 }, "sliding-window"],
];

// A mechanism that sees whole sequences only carries nothing on.
for (const pattern of patterns.filter(streams)) {
  const name = pattern
    .map((choice) => (typeof choice === "string" ? choice : String((choice as { id: string }).id)))
    .join(" and ");
  test(`prefill is step by step decoding at every split: ${name}`, () => {
    const model = modelOf({ pattern, initDeviation: 0.3 }, tokenizer);
    const ids = Int32Array.from({ length: T }, (_, i) => (i * i + 3 * i) % 21);
    const steps = logitsIn(model, ids, new Array<number>(T).fill(1));
    for (let split = 1; split <= T; split++) {
      const pieces = split === T ? [T] : [split, T - split];
      const error = relativeRms(logitsIn(model, ids, pieces), steps);
      assert.ok(error <= bound, `split at ${split}: ${error} > ${bound}`);
      const tail = logitsIn(model, ids, [split, ...new Array<number>(T - split).fill(1)]);
      assert.ok(relativeRms(tail, steps) <= bound, `steps after ${split}: ${relativeRms(tail, steps)}`);
    }
    const lengths = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: T, maxLength: T });
    fc.assert(
      fc.property(lengths, (wanted) => {
        const pieces: number[] = [];
        for (let left = T; left > 0; left -= pieces.at(-1)!)
          pieces.push(Math.min(left, wanted[pieces.length]!));
        assert.ok(relativeRms(logitsIn(model, ids, pieces), steps) <= bound, pieces.join());
      }),
      { numRuns: 12, seed: 5 },
    );
    model.dispose();
  });
}
