import type { Preset } from "../preset.ts";

/** The autoregressive image model of "Transformers are RNNs": 8 layers, 8 heads of 32, feed-forward 4 × as wide. */
export const linearTransformer: Preset = {
  id: "linear-transformer",
  title: "Linear transformer of 2020",
  source: "arXiv 2006.16236v3, section 4.2.1",
  published: {
    ...{ vocabularySize: 257, width: 256, layers: 8, heads: 8, pattern: ["linear"] },
    ...{ norm: "layer", positions: { kind: "sinusoidal" }, feedForward: { kind: "plain", width: 1024 } },
  },
  tiny: {
    ...{ vocabularySize: 257, width: 64, layers: 4, heads: 4, pattern: ["linear"] },
    ...{ norm: "layer", positions: { kind: "sinusoidal" }, feedForward: { kind: "plain", width: 256 } },
  },
};
