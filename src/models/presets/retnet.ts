import type { Preset } from "../preset.ts";

/** RetNet 1.3B: values twice as wide as keys, feed-forward twice as wide as the model. */
export const retnet: Preset = {
  id: "retnet",
  title: "RetNet",
  source: "arXiv 2307.08621v4, table 2 (1.3B)",
  published: {
    ...{ vocabularySize: 50_257, width: 2048, layers: 24, heads: 8, pattern: ["retention"] },
    ...{
      mixer: { keyWidth: 256, valueWidth: 512 },
      feedForward: { kind: "plain", width: 4096, bias: false },
    },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 2, pattern: ["retention"] },
    ...{ mixer: { keyWidth: 32, valueWidth: 64 }, feedForward: { kind: "plain", width: 128, bias: false } },
  },
};
