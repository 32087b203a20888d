import type { DecoderConfig } from "../../models/config.ts";
import type { LanguageTraining } from "./training.ts";

/** A small hybrid: three Gated DeltaNet layers and one of gated softmax attention. */
export const demoModel: DecoderConfig = {
  vocabularySize: 1024,
  width: 128,
  layers: 4,
  heads: 2,
  pattern: ["gated-delta", "gated-delta", "gated-delta", { id: "softmax", gated: true, heads: 4 }],
  mixer: { keyWidth: 32, valueWidth: 64 },
  positions: { kind: "rotary" },
  tied: true,
};

/** How it learns a book in a minute and a half. */
export const demoTraining: Partial<LanguageTraining> = {
  ...{ schedule: "clock", steps: 1_000_000_000, saveEvery: 500, batch: 4, time: 256 },
  ...{ learningRate: 1.5e-2, warmup: 20, heldOut: 0.05 },
};
