import type { MixerChoice } from "../config.ts";
import type { Preset } from "../preset.ts";

const pattern = (delta: MixerChoice, softmax: MixerChoice): MixerChoice[] => [delta, delta, delta, softmax];

/** Qwen3-Next 80B-A3B: three layers of Gated DeltaNet to one of gated softmax attention, 512 experts, ten a token. */
export const qwen3Next: Preset = {
  id: "qwen3-next",
  title: "Qwen3-Next",
  source: "the released configuration of Qwen3-Next-80B-A3B",
  published: {
    ...{ vocabularySize: 151_936, width: 2048, layers: 48, heads: 16, normEps: 1e-6, zeroCentered: true },
    pattern: pattern(
      { id: "gated-delta", valueHeads: 32, keyWidth: 128, valueWidth: 128 },
      { id: "softmax", keyValueHeads: 2, keyWidth: 256, valueWidth: 256, gated: true, queryKeyNorm: true },
    ),
    positions: { kind: "rotary", base: 10_000_000, width: 64 },
    feedForward: {
      ...{ kind: "experts", experts: 512, perToken: 10, width: 512 },
      ...{ sharedWidth: 512, sharedGate: true, balance: 0.001 },
    },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 2, normEps: 1e-6, zeroCentered: true },
    pattern: pattern(
      { id: "gated-delta", valueHeads: 4, keyWidth: 16, valueWidth: 16 },
      {
        id: "softmax",
        heads: 4,
        keyValueHeads: 2,
        keyWidth: 16,
        valueWidth: 16,
        gated: true,
        queryKeyNorm: true,
      },
    ),
    positions: { kind: "rotary", width: 4 },
    feedForward: {
      ...{ kind: "experts", experts: 4, perToken: 2, width: 48 },
      ...{ sharedWidth: 48, sharedGate: true, balance: 0.001 },
    },
  },
};
