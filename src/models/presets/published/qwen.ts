/** Qwen3-Next and the text part of Qwen3.5: Gated DeltaNet and gated softmax attention in turn. */

import { UnsupportedError } from "../../../errors.ts";
import { qwen3NextNames, qwen35Names } from "../../../mechanisms/gated-delta/names.ts";
import { transformersNames } from "../../../mechanisms/softmax/names.ts";
import type { TensorNames } from "../../../nn/tensor-names.ts";
import { gatedWidth } from "../../blocks.ts";
import type {
  DecoderConfig,
  ExpertsConfig,
  FeedForwardConfig,
  LayerChoice,
  MixerChoice,
} from "../../config.ts";
import { type ConfigJson, ConfigReader } from "./config-json.ts";
import { type Expressible, expressed } from "./expressible.ts";
import type { ModelNames, PublishedFormat } from "./format.ts";
import { layerTypes, readRotary, writeLayerTypes } from "./layer-types.ts";

const experts = "blocks.*.feedForward.experts";
const gated = ["gate", "up", "down"];

function projections(own: string, file: string): Record<string, string> {
  return Object.fromEntries(gated.map((part) => [`${own}.${part}.weight`, `${file}.${part}_proj.weight`]));
}

const modelNames: Readonly<Record<string, string>> = {
  "embedding.weight": "model.embed_tokens.weight",
  "blocks.*.mixerNorm.weight": "model.layers.*.input_layernorm.weight",
  "blocks.*.feedForwardNorm.weight": "model.layers.*.post_attention_layernorm.weight",
  ...projections("blocks.*.feedForward", "model.layers.*.mlp"),
  ...projections(`${experts}.experts.*`, "model.layers.*.mlp.experts.*"),
  ...projections(`${experts}.shared`, "model.layers.*.mlp.shared_expert"),
  [`${experts}.router.weight`]: "model.layers.*.mlp.gate.weight",
  [`${experts}.sharedGate.weight`]: "model.layers.*.mlp.shared_expert_gate.weight",
  "norm.weight": "model.norm.weight",
  "head.weight": "lm_head.weight",
};

function namesOf(delta: TensorNames): ModelNames {
  return {
    model: { renamed: modelNames },
    mixers: {
      "gated-delta": { ...delta, prefix: "model.layers.*.linear_attn." },
      softmax: { ...transformersNames, prefix: "model.layers.*.self_attn." },
    },
    alsoUnder: { "model.": "model.language_model." },
    passedOver: ["mtp.*", "model.visual.*", "visual.*", "*.rotary_emb.inv_freq"],
  };
}

function readMixers(config: ConfigReader): { delta: MixerChoice; softmax: MixerChoice } {
  config.only("attention_bias", false);
  const keyHeads = config.count("linear_num_key_heads", 16);
  return {
    delta: {
      id: "gated-delta",
      heads: keyHeads,
      valueHeads: config.count("linear_num_value_heads", 32),
      keyWidth: config.count("linear_key_head_dim", 128),
      valueWidth: config.count("linear_value_head_dim", 128),
      convWidth: config.count("linear_conv_kernel_dim", 4),
    },
    softmax: {
      id: "softmax",
      keyValueHeads: config.count("num_key_value_heads"),
      keyWidth: config.count("head_dim", 256),
      valueWidth: config.count("head_dim", 256),
      gated: true,
      queryKeyNorm: true,
    },
  };
}

function readModel(config: ConfigReader, feedForward: FeedForwardConfig): DecoderConfig {
  config.only("hidden_act", "silu");
  const { delta, softmax } = readMixers(config);
  const layers = config.count("num_hidden_layers");
  const kinds = { linear_attention: delta, full_attention: softmax };
  return {
    vocabularySize: config.count("vocab_size"),
    width: config.count("hidden_size"),
    heads: config.count("num_attention_heads"),
    layers,
    pattern: layerTypes(config, layers, kinds, config.count("full_attention_interval", 4)),
    normEps: config.number("rms_norm_eps", 1e-6),
    zeroCentered: true,
    tied: config.flag("tie_word_embeddings", false),
    initDeviation: config.number("initializer_range", 0.02),
    positions: readRotary(config, config.count("head_dim", 256), 0.25),
    feedForward,
  };
}

const can: Expressible = {
  mixers: {
    "gated-delta": ["valueHeads", "keyWidth", "valueWidth", "convWidth"],
    softmax: ["keyValueHeads", "keyWidth", "valueWidth", "gated", "queryKeyNorm"],
  },
  feedForward: ["gated", "experts"],
  zeroCentered: true,
};

function refuse(who: string, what: string): never {
  throw new UnsupportedError(`[${who}] the format has no words for the model: expected ${what}`);
}

function writeModel(who: string, config: DecoderConfig): ConfigJson {
  const layers = expressed(who, config, can);
  const find = (id: string): LayerChoice["options"] =>
    layers.find(({ mechanism }) => mechanism.id === id)?.options ??
    refuse(who, `layers of ${id} among others`);
  const [delta, softmax] = [find("gated-delta"), find("softmax")];
  if (!softmax["gated"] || !softmax["queryKeyNorm"]) refuse(who, "softmax layers with gate and norms");
  const size = (value: unknown, usual: number): number => (value as number | undefined) ?? usual;
  const headWidth = size(softmax["keyWidth"], config.width / size(softmax["heads"], config.heads));
  if (config.positions?.kind !== "rotary") refuse(who, "rotary positions");
  const { base = 10_000, width = headWidth } = config.positions as { base?: number; width?: number };
  const heads = size(delta["heads"], config.heads);
  const keyWidth = size(delta["keyWidth"], Math.round((0.75 * config.width) / heads));
  return {
    vocab_size: config.vocabularySize,
    hidden_size: config.width,
    num_hidden_layers: config.layers,
    num_attention_heads: size(softmax["heads"], config.heads),
    num_key_value_heads: size(softmax["keyValueHeads"], config.heads),
    head_dim: headWidth,
    attention_bias: false,
    linear_num_key_heads: heads,
    linear_num_value_heads: size(delta["valueHeads"], heads),
    linear_key_head_dim: keyWidth,
    linear_value_head_dim: size(delta["valueWidth"], 2 * keyWidth),
    linear_conv_kernel_dim: size(delta["convWidth"], 4),
    layer_types: writeLayerTypes(layers, { "gated-delta": "linear_attention", softmax: "full_attention" }),
    rms_norm_eps: config.normEps ?? 1e-5,
    hidden_act: "silu",
    tie_word_embeddings: config.tied ?? false,
    initializer_range: config.initDeviation ?? 0.02,
    partial_rotary_factor: width / headWidth,
    rope_theta: base,
    rope_parameters: { rope_type: "default", rope_theta: base, partial_rotary_factor: width / headWidth },
    use_cache: true,
  };
}

function expertsOf(who: string, { feedForward }: DecoderConfig): ExpertsConfig {
  const config = feedForward?.kind === "experts" ? feedForward : refuse(who, "experts");
  if (!config.sharedGate || config.sharedWidth === undefined)
    refuse(who, "a gated expert that all tokens visit");
  if (config.router === "sigmoid" || config.denseLayers || (config.routedScale ?? 1) !== 1)
    refuse(who, "a softmax router over experts in every layer");
  return config;
}

/** `qwen3_next`. */
export const qwen3NextFormat: PublishedFormat = {
  modelTypes: ["qwen3_next"],
  library: "transformers",
  names: namesOf(qwen3NextNames),
  read: (json) => {
    const config = new ConfigReader(json, "qwen3_next config");
    config.only("decoder_sparse_step", 1);
    if ((config.list("mlp_only_layers", "number") ?? []).length > 0) {
      throw new UnsupportedError("[qwen3_next config] mlp_only_layers is not supported: expected none");
    }
    return readModel(config, {
      kind: "experts",
      experts: config.count("num_experts", 512),
      perToken: config.count("num_experts_per_tok", 10),
      width: config.count("moe_intermediate_size", 512),
      renormalize: config.flag("norm_topk_prob", true),
      sharedWidth: config.count("shared_expert_intermediate_size", 512),
      sharedGate: true,
      balance: config.number("router_aux_loss_coef", 0.001),
    });
  },
  write: (config) => {
    const model = writeModel("qwen3_next", config);
    const feeding = expertsOf("qwen3_next", config);
    return {
      architectures: ["Qwen3NextForCausalLM"],
      ...model,
      intermediate_size: feeding.width,
      decoder_sparse_step: 1,
      mlp_only_layers: [],
      num_experts: feeding.experts,
      num_experts_per_tok: feeding.perToken,
      moe_intermediate_size: feeding.width,
      norm_topk_prob: feeding.renormalize ?? true,
      shared_expert_intermediate_size: feeding.sharedWidth,
      router_aux_loss_coef: feeding.balance ?? 0,
    };
  },
};

/** `qwen3_5`, its text alone: what a picture adds is passed over. */
export const qwen35Format: PublishedFormat = {
  modelTypes: ["qwen3_5_text", "qwen3_5"],
  library: "transformers",
  names: namesOf(qwen35Names),
  read: (json) => {
    const outer = new ConfigReader(json, "qwen3_5 config");
    const config = json["text_config"] === undefined ? outer : outer.inner("text_config");
    const tied = json["tie_word_embeddings"];
    const model = readModel(config, { kind: "gated", width: config.count("intermediate_size") });
    return typeof tied === "boolean" ? { ...model, tied } : model;
  },
  write: (config) => {
    const model = writeModel("qwen3_5_text", config);
    const feeding = config.feedForward ?? { kind: "gated", width: gatedWidth(config.width) };
    if (feeding.kind !== "gated") return refuse("qwen3_5_text", "a gated feed-forward");
    return { architectures: ["Qwen3_5ForCausalLM"], ...model, intermediate_size: feeding.width };
  },
};
