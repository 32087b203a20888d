import type { DecoderConfig, MixerChoice, ResidualConfig } from "../config.ts";
import type { Preset } from "../preset.ts";

const pattern = (softmax: MixerChoice): MixerChoice[] => [
  ...new Array<MixerChoice>(7).fill({ id: "lightning", normEps: 1e-6 }),
  softmax,
];

/** DeepNorm's weight of what a branch is added to, by depth (arXiv 2203.00555v1, section 3.3). */
function residual(layers: number): NonNullable<DecoderConfig["residual"]> {
  const branch: ResidualConfig = { alpha: (2 * layers) ** (1 / 4), beta: 1, fromNorm: true };
  return { mixer: { lightning: branch, softmax: branch }, feedForward: branch };
}

/** MiniMax-Text-01: seven layers of lightning attention to one of softmax, 32 experts of which a token visits two. */
export const minimaxText01: Preset = {
  id: "minimax-text-01",
  title: "MiniMax-Text-01",
  source: "arXiv 2501.08313v1, section 2; the released configuration",
  published: {
    ...{ vocabularySize: 200_064, width: 6144, layers: 80, heads: 64 },
    pattern: pattern({ id: "softmax", keyValueHeads: 8 }),
    positions: { kind: "rotary", base: 10_000_000, width: 64 },
    mixer: { keyWidth: 128, valueWidth: 128 },
    feedForward: { kind: "experts", experts: 32, perToken: 2, width: 9216, balance: 0.001 },
    residual: residual(80),
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 8, heads: 4 },
    pattern: pattern({ id: "softmax", keyValueHeads: 2 }),
    positions: { kind: "rotary", width: 8 },
    mixer: { keyWidth: 16, valueWidth: 16 },
    feedForward: { kind: "experts", experts: 4, perToken: 2, width: 96, balance: 0.001 },
    residual: residual(8),
  },
};
