/** Mamba-2 as transformers and as flash-linear-attention keep it: the same tensors, other words, another norm. */

import { UnsupportedError } from "../../../errors.ts";
import { mambaNames } from "../../../mechanisms/mamba2/names.ts";
import type { DecoderConfig } from "../../config.ts";
import { type ConfigJson, ConfigReader } from "./config-json.ts";
import { expressed, uniform } from "./expressible.ts";
import type { ModelNames, PublishedFormat } from "./format.ts";

const names: ModelNames = {
  model: {
    renamed: {
      // mamba_ssm says it in the singular.
      "embedding.weight": ["backbone.embeddings.weight", "backbone.embedding.weight"],
      "blocks.*.mixerNorm.weight": "backbone.layers.*.norm.weight",
      "norm.weight": "backbone.norm_f.weight",
      "head.weight": "lm_head.weight",
    },
  },
  mixers: { mamba2: { ...mambaNames, prefix: "backbone.layers.*.mixer." } },
};

function readSizes(config: ConfigReader): Omit<DecoderConfig, "normEps" | "mixer"> {
  config.only("use_bias", false);
  config.only("hidden_act", "silu", "swish");
  return {
    vocabularySize: config.count("vocab_size", 32_768),
    width: config.count("hidden_size"),
    heads: config.count("num_heads"),
    layers: config.count("num_hidden_layers"),
    pattern: ["mamba2"],
    tied: config.flag("tie_word_embeddings", false),
    initDeviation: config.number("initializer_range", 0.1),
    feedForward: { kind: "none" },
  };
}

function readMixer(
  config: ConfigReader,
  limitKey: string,
  usualGroups: number,
): Readonly<Record<string, unknown>> {
  const [low = 0, high = Number.POSITIVE_INFINITY] = config.list<number>(limitKey, "number") ?? [];
  return {
    keyWidth: config.count("state_size", 128),
    valueWidth: config.count("head_dim", 64),
    groups: config.count("n_groups", usualGroups),
    convWidth: config.count("conv_kernel", 4),
    convBias: config.flag("use_conv_bias", true),
    timeStepLimit: [low, high],
  };
}

function writeSizes(config: DecoderConfig, options: Readonly<Record<string, unknown>>): ConfigJson {
  const heads = options["heads"] as number;
  const headWidth = (options["valueWidth"] as number | undefined) ?? (2 * config.width) / heads;
  return {
    architectures: ["Mamba2ForCausalLM"],
    vocab_size: config.vocabularySize,
    hidden_size: config.width,
    num_heads: heads,
    head_dim: headWidth,
    expand: (heads * headWidth) / config.width,
    num_hidden_layers: config.layers,
    state_size: options["keyWidth"] ?? 128,
    n_groups: options["groups"] ?? 1,
    conv_kernel: options["convWidth"] ?? 4,
    use_conv_bias: options["convBias"] ?? true,
    use_bias: false,
    hidden_act: "silu",
    chunk_size: 256,
    tie_word_embeddings: config.tied ?? false,
    initializer_range: config.initDeviation ?? 0.02,
    residual_in_fp32: true,
    use_cache: true,
  };
}

const optionNames = [
  "keyWidth",
  "valueWidth",
  "groups",
  "convWidth",
  "convBias",
  "timeStepLimit",
  "normGroups",
];

/** The options of all layers, whose norms are over as many groups as the library has them. */
function optionsOf(
  config: DecoderConfig,
  more: readonly string[],
  normGroups: (groups: number) => number,
): Readonly<Record<string, unknown>> {
  const mixers = { mamba2: [...optionNames, ...more] };
  const options = uniform("mamba2", expressed("mamba2", config, { mixers, feedForward: ["none"] }));
  const groups = (options["groups"] as number | undefined) ?? 1;
  if ((options["normGroups"] ?? groups) === normGroups(groups)) return options;
  throw new UnsupportedError(
    `[mamba2] the format has no words for the model: expected norms over ${normGroups(groups)} groups, got ${options["normGroups"] ?? groups}`,
    "transformers has one norm over the whole width, flash-linear-attention one for each group.",
  );
}

/** `mamba2` of flash-linear-attention: the norm is over each group. */
export const flashMamba2: PublishedFormat = {
  modelTypes: ["mamba2"],
  library: "flash-linear-attention",
  claims: (json) => "norm_eps" in json,
  names,
  read: (json) => {
    const config = new ConfigReader(json, "mamba2 config");
    config.only("rmsnorm", true);
    config.only("D_has_hdim", false);
    const mixer = {
      ...readMixer(config, "dt_limit", 1),
      normBeforeGate: config.flag("norm_before_gate", false),
    };
    return { ...readSizes(config), normEps: config.number("norm_eps", 1e-5), mixer };
  },
  write: (config) => {
    const options = optionsOf(config, ["normBeforeGate"], (groups) => groups);
    return {
      ...writeSizes(config, options),
      norm_eps: config.normEps ?? 1e-5,
      norm_before_gate: options["normBeforeGate"] ?? false,
      rmsnorm: true,
      dt_limit: options["timeStepLimit"] ?? [0, Number.POSITIVE_INFINITY],
    };
  },
};

/** `mamba2` of transformers: the norm is over the whole inner width, however many groups there are. */
export const mamba2Format: PublishedFormat = {
  modelTypes: ["mamba2"],
  library: "transformers",
  claims: (json) => !("norm_eps" in json),
  names,
  read: (json) => {
    const config = new ConfigReader(json, "mamba2 config");
    config.only("rms_norm", true);
    const mixer = { ...readMixer(config, "time_step_limit", 8), normGroups: 1 };
    return { ...readSizes(config), normEps: config.number("layer_norm_epsilon", 1e-5), mixer };
  },
  write: (config) => {
    const options = optionsOf(config, [], () => 1);
    return {
      ...writeSizes(config, options),
      layer_norm_epsilon: config.normEps ?? 1e-5,
      time_step_limit: options["timeStepLimit"] ?? [0, Number.POSITIVE_INFINITY],
    };
  },
};
