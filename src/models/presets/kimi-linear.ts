import type { MixerChoice } from "../config.ts";
import type { Preset } from "../preset.ts";

const kda: MixerChoice = { id: "kda", gateBias: false };
const pattern = (latent: MixerChoice): MixerChoice[] => [kda, kda, kda, latent];

/** Kimi Linear 48B-A3B: three layers of Kimi Delta Attention to one of latent attention without positions, 256 experts. */
export const kimiLinear: Preset = {
  id: "kimi-linear",
  title: "Kimi Linear",
  source: "arXiv 2510.26692v2; the released configuration of Kimi-Linear-48B-A3B",
  published: {
    ...{ vocabularySize: 163_840, width: 2304, layers: 27, heads: 32 },
    pattern: pattern({
      id: "latent-attention",
      keyWidth: 128,
      valueWidth: 128,
      latentWidth: 512,
      sharedKeyWidth: 64,
      normEps: 1e-6,
    }),
    mixer: { keyWidth: 128, valueWidth: 128 },
    feedForward: {
      ...{ kind: "experts", experts: 256, perToken: 8, width: 1024, router: "sigmoid", routedScale: 2.446 },
      ...{ sharedWidth: 1024, denseLayers: 1, denseWidth: 9216 },
    },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 4 },
    pattern: pattern({
      id: "latent-attention",
      keyWidth: 16,
      valueWidth: 16,
      latentWidth: 32,
      sharedKeyWidth: 8,
      normEps: 1e-6,
    }),
    mixer: { keyWidth: 16, valueWidth: 16 },
    feedForward: {
      ...{ kind: "experts", experts: 4, perToken: 2, width: 48, router: "sigmoid", routedScale: 2.446 },
      ...{ sharedWidth: 48, denseLayers: 1, denseWidth: 192 },
    },
  },
};
