import type { Preset } from "../preset.ts";

/** Mamba-2 1.3B: no feed-forward, an inner width of twice the model's in heads of 64, states of 128. */
export const mamba2Preset: Preset = {
  id: "mamba2",
  title: "Mamba-2",
  source: "arXiv 2405.21060v1, section 9.2 (1.3B)",
  published: {
    ...{ vocabularySize: 50_280, width: 2048, layers: 48, heads: 64, pattern: ["mamba2"], tied: true },
    ...{ mixer: { keyWidth: 128, valueWidth: 64, groups: 1 }, feedForward: { kind: "none" } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 4, pattern: ["mamba2"], tied: true },
    ...{ mixer: { keyWidth: 32, valueWidth: 32, groups: 1 }, feedForward: { kind: "none" } },
  },
};
