import type { Preset } from "../preset.ts";

/** Gated DeltaNet: six heads of 256, values twice as wide. */
export const gatedDeltaNet: Preset = {
  id: "gated-delta-net",
  title: "Gated DeltaNet",
  source: "arXiv 2412.06464v3, section 4 (1.3B)",
  published: {
    ...{ vocabularySize: 32_000, width: 2048, layers: 21, heads: 6, pattern: ["gated-delta"] },
    ...{ mixer: { keyWidth: 256, valueWidth: 512 }, feedForward: { kind: "gated", width: 5632 } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 2, pattern: ["gated-delta"] },
    ...{ mixer: { keyWidth: 24, valueWidth: 48 }, feedForward: { kind: "gated", width: 192 } },
  },
};
