/** The layers that are tested: every mechanism, with the options that change what it computes. */
export interface Variant {
  readonly id: string;
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
  /** What float32 pieces may be off by, where it is more than usual. */
  readonly bound?: number;
  /** What gradients may be off by, where it is more than finite differences are. */
  readonly gradientBound?: number;
}

const of = (id: string, variants: Readonly<Record<string, Record<string, unknown>>>): Variant[] =>
  Object.entries(variants).map(([what, options]) => ({
    id,
    name: what === "" ? id : `${id} ${what}`,
    options,
  }));

/** Every variant. */
export const variants: readonly Variant[] = [
  ...of("linear", {
    "": {},
    "without its normaliser": { featureMap: "identity", normalize: false, norm: true },
    "with learned maps": { featureMap: "hadamard", norm: true, scale: 12 ** -0.5 },
    "with rotary positions": { rotaryBase: 100, valueHeads: 4, valueWidth: 5 },
    "of second order": { featureMap: "taylor-2", keyWidth: 4 },
    "of sparse features": { featureMap: "dpfp-3", keyWidth: 4 },
  }),
  // What is added to the normaliser, 1e-6, is in a unit that has no gradient.
  ...of("performer", {
    "": { features: 9 },
    "with grouped values": { features: 9, valueHeads: 4 },
  }).map((variant) => ({ ...variant, gradientBound: 1e-5 })),
  ...of("cosine", { "": {}, "without a norm": { norm: false } }),
  ...of("fast-weights", { "": {}, "of one roll": { rolls: 1, valueHeads: 4 } }),
  ...of("retention", { "": {}, ungated: { outputGate: false, valueHeads: 4, keyWidth: 6 } }),
  ...of("lightning", { "": {} }),
  ...of("gla", {
    "": {},
    "with a floor": { gateDivisor: 1, gateFloor: -0.7 },
    "with grouped values": { valueHeads: 4, keyWidth: 5, gateRank: 3 },
  }),
  ...of("hgrn2", { "": {}, "with grouped values": { valueHeads: 4, keyWidth: 6 } }),
  ...of("mamba2", {
    "": { keyWidth: 8 },
    "with groups": { heads: 4, groups: 2, keyWidth: 6, valueWidth: 5, convBias: false },
    "with one norm": { heads: 4, groups: 2, keyWidth: 6, valueWidth: 6, normGroups: 1, convWidth: 2 },
    "with bounds and the norm first": { keyWidth: 6, timeStepLimit: [0.2, 0.9], normBeforeGate: true },
  }),
  ...of("delta", {
    "": {},
    "without a convolution": { convWidth: 0, writeStrength: false },
    "of sums": { queryKeyActivation: "elu+1", queryKeyNorm: "sum" },
    "without an activation": { queryKeyActivation: "identity" },
    "without both": { queryKeyActivation: "relu", convWidth: 0 },
    gated: { outputGate: true, negativeEigenvalues: true, convWidth: 2 },
  }),
  ...of("gated-delta", {
    "": { keyWidth: 6 },
    "with grouped values": { keyWidth: 6, valueWidth: 5, valueHeads: 4, negativeEigenvalues: true },
    ungated: { keyWidth: 6, outputGate: false, convWidth: 3 },
  }),
  ...of("kda", {
    "": {},
    "with a bounded gate": { gateBound: -5 },
    "without a bias": { gateBias: false, valueHeads: 4, negativeEigenvalues: true },
  }),
  ...of("softmax", {
    "": { rotary: { base: 100 } },
    "gated, with grouped queries": {
      ...{ heads: 4, keyValueHeads: 2, gated: true, queryKeyNorm: true, keyWidth: 8, rotary: { width: 4 } },
    },
    "with a window": { window: 3, bias: true },
  }),
  ...of("latent-attention", {
    "": { latentWidth: 10, sharedKeyWidth: 4, rotary: {} },
    "without positions": { latentWidth: 10, queryLatentWidth: 7, sharedKeyWidth: 4 },
  }),
  ...of("sliding-window", { "": { window: 4 }, gated: { window: 3, join: "gated", featureMap: "elu+1" } }),
  ...of("linformer", { "": { length: 40, projectionLength: 4 } }),
  ...of("nystrom", { "": { landmarks: 4 }, "with a convolution": { landmarks: 4, convWidth: 3 } }),
  ...of("lsh", { "": { rounds: 2, group: 4, buckets: 4 } }),
];
