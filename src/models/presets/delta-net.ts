import type { Preset } from "../preset.ts";

/** DeltaNet 1.3B: heads of 128. */
export const deltaNet: Preset = {
  id: "delta-net",
  title: "DeltaNet",
  source: "arXiv 2406.06484v6, section 5 (1.3B)",
  published: {
    ...{ vocabularySize: 32_000, width: 2048, layers: 24, heads: 16, pattern: ["delta"] },
    ...{ mixer: { keyWidth: 128, valueWidth: 128 }, feedForward: { kind: "gated", width: 5632 } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 2, pattern: ["delta"] },
    ...{ mixer: { keyWidth: 32, valueWidth: 32 }, feedForward: { kind: "gated", width: 192 } },
  },
};
