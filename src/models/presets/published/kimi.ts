/** Kimi Linear: Kimi Delta Attention and latent attention without positions, experts behind a sigmoid router. */

import { FormatError, UnsupportedError } from "../../../errors.ts";
import { kimiNames as kdaNames } from "../../../mechanisms/kda/names.ts";
import { kimiNames as latentNames } from "../../../mechanisms/latent-attention/names.ts";
import type { DecoderConfig, ExpertsConfig, LayerChoice, MixerChoice } from "../../config.ts";
import { type ConfigJson, ConfigReader } from "./config-json.ts";
import { type Expressible, expressed } from "./expressible.ts";
import type { PublishedFormat } from "./format.ts";
import { writeLayerTypes } from "./layer-types.ts";

const moe = "model.layers.*.block_sparse_moe";
const experts = "blocks.*.feedForward.experts";

/** What the norm of the latent adds, whatever rms_norm_eps says. */
const latentEps = 1e-6;

const can: Expressible = {
  mixers: {
    kda: ["keyWidth", "valueWidth", "convWidth", "gateBias"],
    "latent-attention": ["keyWidth", "valueWidth", "latentWidth", "sharedKeyWidth", "normEps"],
  },
  feedForward: ["experts"],
};

/** Dense layers are called as the experts beside them, or as in models without experts. */
function dense(part: string): readonly string[] {
  return [`${moe}.${part}_proj.weight`, `model.layers.*.mlp.${part}_proj.weight`];
}

/** The mixers by layers that are counted from 1. */
function readPattern(config: ConfigReader, layers: number): readonly MixerChoice[] {
  const linear = config.inner("linear_attn_config");
  const headWidth = linear.count("head_dim", 128);
  const kda: MixerChoice = {
    ...{ id: "kda", heads: linear.count("num_heads"), keyWidth: headWidth, valueWidth: headWidth },
    ...{ convWidth: linear.count("short_conv_kernel_size", 4), gateBias: false },
  };
  const latent: MixerChoice = {
    id: "latent-attention",
    keyWidth: config.count("qk_nope_head_dim", 128),
    valueWidth: config.count("v_head_dim", 128),
    latentWidth: config.count("kv_lora_rank", 512),
    sharedKeyWidth: config.count("qk_rope_head_dim", 64),
    normEps: latentEps,
  };
  const full = linear.list<number>("full_attn_layers", "number") ?? [];
  const own = linear.list<number>("kda_layers", "number") ?? [];
  if (full.length + own.length !== layers) {
    throw new FormatError(
      `[kimi_linear config] linear_attn_config makes no model: expected ${layers} layers in kda_layers and full_attn_layers, got ${own.length + full.length}`,
    );
  }
  return Array.from({ length: layers }, (_, i) => (full.includes(i + 1) ? latent : kda));
}

function readModel(config: ConfigReader): DecoderConfig {
  config.only("hidden_act", "silu");
  config.only("q_lora_rank");
  config.only("mla_use_nope", true);
  config.only("moe_router_activation_func", "sigmoid");
  config.only("moe_layer_freq", 1);
  const layers = config.count("num_hidden_layers");
  const width = config.count("moe_intermediate_size");
  const sharedExperts = config.number("num_shared_experts", 0);
  return {
    vocabularySize: config.count("vocab_size"),
    width: config.count("hidden_size"),
    heads: config.count("num_attention_heads"),
    layers,
    pattern: readPattern(config, layers),
    normEps: config.number("rms_norm_eps", 1e-5),
    tied: config.flag("tie_word_embeddings", false),
    initDeviation: config.number("initializer_range", 0.02),
    feedForward: {
      kind: "experts",
      experts: config.count("num_experts"),
      perToken: config.count("num_experts_per_token"),
      width,
      router: "sigmoid",
      renormalize: config.flag("moe_renormalize", true),
      routedScale: config.number("routed_scaling_factor", 1),
      groups: config.count("num_expert_group", 1),
      groupsPerToken: config.count("topk_group", 1),
      denseLayers: config.number("first_k_dense_replace", 0),
      denseWidth: config.count("intermediate_size"),
      ...(sharedExperts > 0 ? { sharedWidth: width * sharedExperts } : {}),
    },
  };
}

function writeExperts(feeding: ExpertsConfig): ConfigJson {
  return {
    intermediate_size: feeding.denseWidth ?? feeding.width,
    first_k_dense_replace: feeding.denseLayers ?? 0,
    moe_intermediate_size: feeding.width,
    num_experts: feeding.experts,
    num_experts_per_token: feeding.perToken,
    num_shared_experts: (feeding.sharedWidth ?? 0) / feeding.width,
    moe_renormalize: feeding.renormalize ?? true,
    moe_router_activation_func: "sigmoid",
    routed_scaling_factor: feeding.routedScale ?? 1,
    num_expert_group: feeding.groups ?? 1,
    topk_group: feeding.groupsPerToken ?? feeding.groups ?? 1,
  };
}

function writeModel(config: DecoderConfig): ConfigJson {
  const layers = expressed("kimi_linear", config, can);
  const refuse = (what: string): never => {
    throw new UnsupportedError(`[kimi_linear] the format has no words for the model: expected ${what}`);
  };
  const find = (id: string): LayerChoice["options"] =>
    layers.find(({ mechanism }) => mechanism.id === id)?.options ?? refuse(`layers of ${id} among others`);
  const [kda, latent] = [find("kda"), find("latent-attention")];
  const { feedForward: feeding } = config;
  if (feeding?.kind !== "experts" || feeding.router !== "sigmoid" || feeding.sharedGate) {
    return refuse("experts behind a sigmoid router");
  }
  if (kda["gateBias"] !== false) refuse("output gates without a bias");
  if ((latent["normEps"] ?? config.normEps ?? 1e-5) !== latentEps)
    refuse(`latent attention with normEps ${latentEps}`);
  if (config.positions?.kind === "rotary") refuse("no positions");
  const at = (id: string): number[] =>
    layers.flatMap(({ mechanism }, i) => (mechanism.id === id ? [i + 1] : []));
  const size = (value: unknown, usual: number): number => (value as number | undefined) ?? usual;
  const [headWidth, keyWidth] = [kda, latent].map((mixer) =>
    size(mixer["keyWidth"], config.width / size(mixer["heads"], config.heads)),
  ) as [number, number];
  const shared = size(latent["sharedKeyWidth"], 2 * Math.floor(keyWidth / 4));
  return {
    architectures: ["KimiLinearForCausalLM"],
    vocab_size: config.vocabularySize,
    hidden_size: config.width,
    num_hidden_layers: config.layers,
    num_attention_heads: size(latent["heads"], config.heads),
    num_key_value_heads: size(latent["heads"], config.heads),
    head_dim: keyWidth + shared,
    qk_nope_head_dim: keyWidth,
    qk_rope_head_dim: shared,
    v_head_dim: size(latent["valueWidth"], keyWidth),
    kv_lora_rank: size(latent["latentWidth"], 4 * keyWidth),
    q_lora_rank: null,
    mla_use_nope: true,
    linear_attn_config: {
      ...{ head_dim: headWidth, num_heads: size(kda["heads"], config.heads) },
      ...{ short_conv_kernel_size: size(kda["convWidth"], 4) },
      ...{ kda_layers: at("kda"), full_attn_layers: at("latent-attention") },
    },
    layer_types: writeLayerTypes(layers, { kda: "linear_attention", "latent-attention": "full_attention" }),
    ...writeExperts(feeding),
    rms_norm_eps: config.normEps ?? 1e-5,
    hidden_act: "silu",
    tie_word_embeddings: config.tied ?? false,
    initializer_range: config.initDeviation ?? 0.02,
    use_cache: true,
  };
}

/** `kimi_linear`. */
export const kimiLinearFormat: PublishedFormat = {
  modelTypes: ["kimi_linear"],
  library: "transformers",
  names: {
    model: {
      renamed: {
        "embedding.weight": "model.embed_tokens.weight",
        "blocks.*.mixerNorm.weight": "model.layers.*.input_layernorm.weight",
        "blocks.*.feedForwardNorm.weight": "model.layers.*.post_attention_layernorm.weight",
        "blocks.*.feedForward.gate.weight": dense("gate"),
        "blocks.*.feedForward.up.weight": dense("up"),
        "blocks.*.feedForward.down.weight": dense("down"),
        [`${experts}.router.weight`]: `${moe}.gate.weight`,
        [`${experts}.correction`]: `${moe}.gate.e_score_correction_bias`,
        [`${experts}.experts.*.gate.weight`]: `${moe}.experts.*.w1.weight`,
        [`${experts}.experts.*.down.weight`]: `${moe}.experts.*.w2.weight`,
        [`${experts}.experts.*.up.weight`]: `${moe}.experts.*.w3.weight`,
        [`${experts}.shared.gate.weight`]: `${moe}.shared_experts.gate_proj.weight`,
        [`${experts}.shared.up.weight`]: `${moe}.shared_experts.up_proj.weight`,
        [`${experts}.shared.down.weight`]: `${moe}.shared_experts.down_proj.weight`,
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
      },
    },
    mixers: {
      kda: { ...kdaNames, prefix: "model.layers.*.self_attn." },
      "latent-attention": { ...latentNames, prefix: "model.layers.*.self_attn." },
    },
  },
  read: (json) => readModel(new ConfigReader(json, "kimi_linear config")),
  write: writeModel,
};
