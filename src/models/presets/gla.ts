import type { Preset } from "../preset.ts";

/** GLA 1.3B: four heads, keys of half the model's width. */
export const glaPreset: Preset = {
  id: "gla",
  title: "Gated linear attention",
  source: "arXiv 2312.06635v6, section 5.1 (1.3B)",
  published: {
    ...{ vocabularySize: 32_000, width: 2048, layers: 24, heads: 4, pattern: ["gla"] },
    ...{ mixer: { keyWidth: 256, valueWidth: 512 }, feedForward: { kind: "gated", width: 5632 } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 2, pattern: ["gla"] },
    ...{ mixer: { keyWidth: 16, valueWidth: 32 }, feedForward: { kind: "gated", width: 192 } },
  },
};
