/** What the models of flash-linear-attention have in common: names outside the mixers, and entries of config.json. */
import type { TensorNames } from "../../../nn/tensor-names.ts";
import { gatedWidth } from "../../blocks.ts";
import type { DecoderConfig } from "../../config.ts";
import { type ConfigJson, ConfigReader } from "./config-json.ts";
import { type Expressible, expressed, uniform } from "./expressible.ts";
import type { PublishedFormat } from "./format.ts";

const modelNames: TensorNames = {
  renamed: {
    "embedding.weight": "model.embeddings.weight",
    "blocks.*.mixerNorm.weight": "model.layers.*.attn_norm.weight",
    "blocks.*.feedForwardNorm.weight": "model.layers.*.mlp_norm.weight",
    "blocks.*.feedForward.gate.weight": "model.layers.*.mlp.gate_proj.weight",
    "blocks.*.feedForward.up.weight": "model.layers.*.mlp.up_proj.weight",
    "blocks.*.feedForward.down.weight": "model.layers.*.mlp.down_proj.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
  },
};

/** A model of flash-linear-attention: one kind of mixer in every layer. */
export interface FlashModel {
  readonly modelType: string;
  readonly architecture: string;
  readonly mixer: string;
  readonly names: TensorNames;
  /** Names outside the mixers that others do not have. */
  readonly ownNames?: Readonly<Record<string, string>>;
  /** Width of the feed-forward over the model's where config.json does not say the first; 4 unless given. */
  readonly hiddenRatio?: number;
  /** Layer options that the format has words for. */
  readonly options: readonly string[];
  /** Heads of the mixers; `num_heads` unless given. */
  heads?(config: ConfigReader): number;
  /** Layer options from config.json; refuses variants that the layer is not. */
  read(config: ConfigReader, sizes: FlashSizes): Readonly<Record<string, unknown>>;
  /** The model's own entries of config.json, from the options of its layers. */
  write(options: Readonly<Record<string, unknown>>, sizes: FlashSizes): ConfigJson;
}

/** Sizes that widths per head follow from. */
export interface FlashSizes {
  readonly width: number;
  readonly heads: number;
  readonly normEps: number;
}

/** The format of such a model. */
export function flashFormat(model: FlashModel): PublishedFormat {
  const { modelType, mixer, names, ownNames = {} } = model;
  return {
    modelTypes: [modelType],
    library: "flash-linear-attention",
    names: {
      model: { renamed: { ...modelNames.renamed, ...ownNames } },
      mixers: { [mixer]: { ...names, prefix: "model.layers.*.attn." } },
      passedOver: ["*.rotary.inv_freq"],
    },
    read: (json) => readModel(model, new ConfigReader(json, `${modelType} config`)),
    write: (config) => writeModel(model, config),
  };
}

function readModel(model: FlashModel, config: ConfigReader): DecoderConfig {
  config.only("attn");
  config.only("attnres_block_size");
  config.only("hidden_act", "swish", "silu");
  config.only("elementwise_affine", true);
  const width = config.count("hidden_size");
  const heads = model.heads?.(config) ?? config.count("num_heads");
  const ratio = config.number("hidden_ratio", model.hiddenRatio ?? 4);
  const usualWidth = 256 * Math.ceil(Math.floor((width * ratio * 2) / 3) / 256);
  const normEps = config.number("norm_eps", 1e-6);
  return {
    vocabularySize: config.count("vocab_size", 32_000),
    width,
    heads,
    layers: config.count("num_hidden_layers"),
    pattern: [model.mixer],
    normEps,
    tied: config.flag("tie_word_embeddings", false),
    initDeviation: config.number("initializer_range", 0.02),
    feedForward: { kind: "gated", width: config.count("intermediate_size", usualWidth) },
    mixer: model.read(config, { width, heads, normEps }),
  };
}

function writeModel(model: FlashModel, config: DecoderConfig): ConfigJson {
  const can: Expressible = { mixers: { [model.mixer]: model.options }, feedForward: ["gated"] };
  const options = uniform(model.modelType, expressed(model.modelType, config, can));
  const normEps = config.normEps ?? 1e-5;
  const sizes = { width: config.width, heads: options["heads"] as number, normEps };
  const { width: hidden } = (config.feedForward ?? { width: gatedWidth(config.width) }) as { width: number };
  return {
    architectures: [model.architecture],
    hidden_size: config.width,
    num_heads: sizes.heads,
    num_hidden_layers: config.layers,
    intermediate_size: hidden,
    hidden_act: "swish",
    norm_eps: normEps,
    vocab_size: config.vocabularySize,
    tie_word_embeddings: config.tied ?? false,
    initializer_range: config.initDeviation ?? 0.02,
    use_cache: true,
    fuse_norm: true,
    ...model.write(options, sizes),
  };
}
