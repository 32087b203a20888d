/** The models of flash-linear-attention whose layers the mechanisms here have. */

import { UnsupportedError } from "../../../errors.ts";
import { flashNames as deltaNames } from "../../../mechanisms/delta/names.ts";
import { flashNames as gatedDeltaNames } from "../../../mechanisms/gated-delta/names.ts";
import { flashNames as glaNames } from "../../../mechanisms/gla/names.ts";
import { flashNames as hgrn2Names } from "../../../mechanisms/hgrn2/names.ts";
import { flashNames as kdaNames } from "../../../mechanisms/kda/names.ts";
import { flashNames as linearNames } from "../../../mechanisms/linear/names.ts";
import { flashNames as retentionNames } from "../../../mechanisms/retention/names.ts";
import type { ConfigReader } from "./config-json.ts";
import { type FlashSizes, flashFormat } from "./flash-model.ts";

/** Widths per head from factors of the model's width, and back. */
function expanded(config: ConfigReader, { width, heads }: FlashSizes, usual: { k: number; v: number }) {
  const perHead = (key: string, factor: number): number =>
    Math.floor(width * config.number(key, factor)) / heads;
  return { keyWidth: perHead("expand_k", usual.k), valueWidth: perHead("expand_v", usual.v) };
}

function factors(
  options: Readonly<Record<string, unknown>>,
  { width, heads }: FlashSizes,
  usual: { k: number; v: number },
) {
  const factor = (name: string, standard: number): number =>
    options[name] === undefined ? standard : ((options[name] as number) * heads) / width;
  return { expand_k: factor("keyWidth", usual.k), expand_v: factor("valueWidth", usual.v) };
}

/** Heads of keys and values are those of the queries. */
function onlyOwnHeads(config: ConfigReader, { heads }: FlashSizes): void {
  config.only("num_kv_heads", heads);
}

const maps: Readonly<Record<string, string>> = {
  hadamard: "elementwise_product",
  "elu+1": "elu",
  relu: "relu",
};

/** `linear_attn`. */
export const linearAttention = /* @__PURE__ */ flashFormat({
  modelType: "linear_attn",
  architecture: "LinearAttentionForCausalLM",
  mixer: "linear",
  names: linearNames,
  options: ["featureMap", "normalize", "norm", "scale", "keyWidth", "valueWidth"],
  read: (config, sizes) => {
    onlyOwnHeads(config, sizes);
    for (const key of ["tie_feature_map_qk", "norm_q", "norm_k", "norm_feature_map"]) config.only(key, false);
    config.only("feature_map", ...Object.values(maps));
    const asked = config.json["feature_map"] ?? "elementwise_product";
    const widths = expanded(config, sizes, { k: 1, v: 1 });
    const featureMap = Object.keys(maps).find((own) => maps[own] === asked);
    return { ...widths, featureMap, normalize: false, norm: true, scale: widths.keyWidth ** -0.5 };
  },
  write: (options, sizes) => {
    const map = maps[(options["featureMap"] as string | undefined) ?? "elu+1"];
    const keyWidth = (options["keyWidth"] as number | undefined) ?? sizes.width / sizes.heads;
    const normalizes = options["normalize"] ?? options["featureMap"] !== "hadamard";
    if (map === undefined || normalizes || !options["norm"] || options["scale"] !== keyWidth ** -0.5) {
      throw new UnsupportedError(
        "[linear_attn] the format has no words for the model: expected layers with norm: true, normalize: false, scale K^-0.5 and one of its maps",
      );
    }
    return { ...factors(options, sizes, { k: 1, v: 1 }), feature_map: map, tie_feature_map_qk: false };
  },
});

/** `retnet`. */
export const retNet = /* @__PURE__ */ flashFormat({
  modelType: "retnet",
  architecture: "RetNetForCausalLM",
  mixer: "retention",
  names: retentionNames,
  hiddenRatio: 2,
  options: ["keyWidth", "valueWidth", "outputGate"],
  read: (config, sizes) => {
    onlyOwnHeads(config, sizes);
    config.only("feature_map");
    config.only("use_short_conv", false);
    return { ...expanded(config, sizes, { k: 1, v: 2 }), outputGate: config.flag("use_output_gate", true) };
  },
  write: (options, sizes) => ({
    ...factors(options, sizes, { k: 1, v: 2 }),
    use_output_gate: options["outputGate"] ?? true,
  }),
});

/** `gla`. */
export const gatedLinear = /* @__PURE__ */ flashFormat({
  modelType: "gla",
  architecture: "GLAForCausalLM",
  mixer: "gla",
  names: glaNames,
  options: ["keyWidth", "valueWidth", "outputGate"],
  read: (config, sizes) => {
    onlyOwnHeads(config, sizes);
    for (const key of ["feature_map", "clamp_min"]) config.only(key);
    for (const key of ["use_short_conv", "use_gv"]) config.only(key, false);
    config.only("use_gk", true);
    return { ...expanded(config, sizes, { k: 0.5, v: 1 }), outputGate: config.flag("use_output_gate", true) };
  },
  write: (options, sizes) => ({
    ...factors(options, sizes, { k: 0.5, v: 1 }),
    use_output_gate: options["outputGate"] ?? true,
    use_short_conv: false,
    use_gk: true,
    use_gv: false,
  }),
});

/** What the layers of the delta family are all read with. */
function convolved(config: ConfigReader, gated: boolean): Readonly<Record<string, unknown>> {
  config.only("use_short_conv", true);
  return {
    convWidth: config.count("conv_size", 4),
    outputGate: config.flag("use_gate", gated),
    negativeEigenvalues: config.flag("allow_neg_eigval", false),
  };
}

function convolvedEntries(options: Readonly<Record<string, unknown>>, gated: boolean) {
  return {
    use_short_conv: true,
    conv_size: options["convWidth"] ?? 4,
    use_gate: options["outputGate"] ?? gated,
    allow_neg_eigval: options["negativeEigenvalues"] ?? false,
  };
}

const convolvedOptions = ["keyWidth", "valueWidth", "convWidth", "negativeEigenvalues"];

/** `delta_net`. */
export const deltaNetwork = /* @__PURE__ */ flashFormat({
  modelType: "delta_net",
  architecture: "DeltaNetForCausalLM",
  mixer: "delta",
  names: deltaNames,
  options: [...convolvedOptions, "outputGate"],
  read: (config, sizes) => {
    config.only("qk_norm", "l2");
    config.only("qk_activation", "silu");
    for (const key of ["use_beta", "use_output_norm"]) config.only(key, true);
    return { ...expanded(config, sizes, { k: 1, v: 1 }), ...convolved(config, false) };
  },
  write: (options, sizes) => ({
    ...factors(options, sizes, { k: 1, v: 1 }),
    ...convolvedEntries(options, false),
    ...{ qk_norm: "l2", qk_activation: "silu", use_beta: true, use_output_norm: true },
  }),
});

/** Widths of heads that a configuration gives as one width and a factor for values. */
function headWidths(config: ConfigReader, usual: { width: number; factor: number }) {
  const keyWidth = config.count("head_dim", usual.width);
  const valueHeads = config.json["num_v_heads"] === null ? undefined : config.json["num_v_heads"];
  return {
    keyWidth,
    valueWidth: Math.floor(keyWidth * config.number("expand_v", usual.factor)),
    ...(valueHeads === undefined ? {} : { valueHeads: config.count("num_v_heads") }),
  };
}

/** `gated_deltanet`. */
export const gatedDeltaNetwork = /* @__PURE__ */ flashFormat({
  modelType: "gated_deltanet",
  architecture: "GatedDeltaNetForCausalLM",
  mixer: "gated-delta",
  names: gatedDeltaNames,
  options: [...convolvedOptions, "outputGate", "valueHeads"],
  read: (config) => ({ ...headWidths(config, { width: 256, factor: 2 }), ...convolved(config, true) }),
  write: (options, { width, heads }) => {
    const keyWidth = (options["keyWidth"] as number | undefined) ?? Math.round((0.75 * width) / heads);
    return {
      head_dim: keyWidth,
      expand_v: ((options["valueWidth"] as number | undefined) ?? 2 * keyWidth) / keyWidth,
      num_v_heads: options["valueHeads"] ?? null,
      ...convolvedEntries(options, true),
    };
  },
});

/** `kda`. */
export const kimiDeltaAttention = /* @__PURE__ */ flashFormat({
  modelType: "kda",
  architecture: "KDAForCausalLM",
  mixer: "kda",
  names: kdaNames,
  options: [...convolvedOptions, "valueHeads"],
  read: (config) => {
    config.only("safe_gate", false);
    config.only("lower_bound");
    const { outputGate: _, ...rest } = convolved(config, true);
    return { ...headWidths(config, { width: 128, factor: 1 }), ...rest };
  },
  write: (options, { width, heads }) => {
    const keyWidth = (options["keyWidth"] as number | undefined) ?? width / heads;
    const { use_gate: _, ...rest } = convolvedEntries(options, true);
    return {
      head_dim: keyWidth,
      expand_v: ((options["valueWidth"] as number | undefined) ?? width / heads) / keyWidth,
      num_v_heads: options["valueHeads"] ?? null,
      ...rest,
    };
  },
});

/** `hgrn2`. */
export const hgrn2Format = /* @__PURE__ */ flashFormat({
  modelType: "hgrn2",
  architecture: "HGRN2ForCausalLM",
  mixer: "hgrn2",
  names: hgrn2Names,
  ownNames: { "blocks.0.mixer.lowerBounds.table": "model.lower_bounds" },
  options: ["keyWidth", "valueWidth", "normEps"],
  heads: (config) => {
    const asked = config.json["num_heads"];
    if (typeof asked === "number") return config.count("num_heads");
    return config.count("hidden_size") / config.count("expand_ratio", 128);
  },
  read: (config, { width, heads }) => {
    config.only("use_short_conv", false);
    config.only("use_lower_bound", true);
    const keyWidth = config.count("expand_ratio", width / heads);
    // What the norm of the layer adds, whatever norm_eps says.
    return { keyWidth, valueWidth: width / heads, normEps: 1e-5 };
  },
  write: (options, { width, heads, normEps }) => {
    const isSaid = (options["valueWidth"] ?? width / heads) === width / heads;
    if (!isSaid || (options["normEps"] ?? normEps) !== 1e-5) {
      throw new UnsupportedError(
        "[hgrn2] the format has no words for the model: expected values of D/H and normEps 1e-5 in layers",
      );
    }
    return {
      expand_ratio: options["keyWidth"] ?? width / heads,
      use_lower_bound: true,
      use_short_conv: false,
    };
  },
});
