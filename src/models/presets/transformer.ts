import type { Preset } from "../preset.ts";

/** The plain decoder with rotary positions and gated feed-forward, at the size its linear rivals are measured at. */
export const transformer: Preset = {
  id: "transformer",
  title: "Softmax transformer",
  source: "arXiv 2312.06635v6, section 5.1 (Transformer++, 1.3B)",
  published: {
    ...{ vocabularySize: 32_000, width: 2048, layers: 24, heads: 16, pattern: ["softmax"] },
    ...{ positions: { kind: "rotary" }, feedForward: { kind: "gated", width: 5632 } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 4, pattern: ["softmax"] },
    ...{ positions: { kind: "rotary" }, feedForward: { kind: "gated", width: 192 } },
  },
};
