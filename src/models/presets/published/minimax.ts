/** MiniMax-Text-01: lightning and softmax attention in turn, experts, residual branches that begin at the norm. */

import { UnsupportedError } from "../../../errors.ts";
import { miniMaxNames } from "../../../mechanisms/lightning/names.ts";
import { lightningDecays } from "../../../mechanisms/lightning/rule.ts";
import { transformersNames } from "../../../mechanisms/softmax/names.ts";
import { type DecoderConfig, expandPattern, type ResidualConfig } from "../../config.ts";
import { type ConfigJson, ConfigReader } from "./config-json.ts";
import { type Expressible, expressed } from "./expressible.ts";
import type { DerivedTensor, PublishedFormat } from "./format.ts";
import { layerTypes, readRotary, writeLayerTypes } from "./layer-types.ts";

const moe = "model.layers.*.block_sparse_moe";
const experts = "blocks.*.feedForward.experts";

/** What the norm inside lightning layers adds, whatever rms_norm_eps says. */
const lightningEps = 1e-6;

const kinds = { lightning: "linear_attention", softmax: "full_attention" } as const;
const branches = { lightning: "linear_attn", softmax: "full_attn" } as const;

const can: Expressible = {
  mixers: {
    lightning: ["keyWidth", "valueWidth", "normEps"],
    softmax: ["keyValueHeads", "keyWidth", "valueWidth"],
  },
  feedForward: ["experts"],
  residual: true,
};

function readBranch(config: ConfigReader, name: string): ResidualConfig {
  return {
    alpha: config.number(`${name}_alpha_factor`, 1),
    beta: config.number(`${name}_beta_factor`, 1),
    fromNorm: true,
  };
}

function writeBranch(name: string, branch: ResidualConfig | undefined): ConfigJson {
  if (branch?.fromNorm !== true) {
    throw new UnsupportedError(
      `[minimax] the format has no words for the model: expected residual branches that begin at the norm, got ${name} without`,
    );
  }
  return { [`${name}_alpha_factor`]: branch.alpha, [`${name}_beta_factor`]: branch.beta };
}

function readModel(config: ConfigReader): DecoderConfig {
  config.only("hidden_act", "silu");
  config.only("sliding_window");
  const [heads, width] = [config.count("num_attention_heads"), config.count("hidden_size")];
  const headWidth = config.count("head_dim", width / heads);
  const widths = { keyWidth: headWidth, valueWidth: headWidth };
  const layers = config.count("num_hidden_layers");
  const softmax = { id: "softmax", ...widths, keyValueHeads: config.count("num_key_value_heads", 8) };
  const mixers = {
    full_attention: softmax,
    linear_attention: { id: "lightning", ...widths, normEps: lightningEps },
  };
  return {
    vocabularySize: config.count("vocab_size"),
    width,
    heads,
    layers,
    pattern: layerTypes(config, layers, mixers, 2),
    normEps: config.number("rms_norm_eps", 1e-5),
    tied: config.flag("tie_word_embeddings", false),
    initDeviation: config.number("initializer_range", 0.02),
    positions: readRotary(config, headWidth, 1),
    feedForward: {
      kind: "experts",
      experts: config.count("num_local_experts", 8),
      perToken: config.count("num_experts_per_tok", 2),
      width: config.count("intermediate_size"),
      balance: config.number("router_aux_loss_coef", 0.001),
    },
    residual: {
      mixer: { lightning: readBranch(config, "linear_attn"), softmax: readBranch(config, "full_attn") },
      feedForward: readBranch(config, "mlp"),
    },
  };
}

function writeModel(config: DecoderConfig): ConfigJson {
  const layers = expressed("minimax", config, can);
  const options = layers.find(({ mechanism }) => mechanism.id === "softmax")?.options ?? {};
  const { feedForward, positions, residual } = config;
  if (feedForward?.kind !== "experts" || feedForward.sharedWidth || feedForward.router === "sigmoid") {
    throw new UnsupportedError(
      "[minimax] the format has no words for the model: expected experts behind a softmax router, none of them for all tokens",
    );
  }
  const lightning = layers.find(({ mechanism }) => mechanism.id !== "softmax")?.options ?? {};
  if ((lightning["normEps"] ?? config.normEps ?? 1e-5) !== lightningEps) {
    throw new UnsupportedError(
      `[minimax] the format has no words for the model: expected lightning layers with normEps ${lightningEps}`,
    );
  }
  const headWidth = (layers[0]!.options["keyWidth"] as number | undefined) ?? config.width / config.heads;
  const { base = 10_000, width = headWidth } = positions as { base?: number; width?: number };
  return {
    architectures: ["MiniMaxForCausalLM"],
    vocab_size: config.vocabularySize,
    hidden_size: config.width,
    num_hidden_layers: config.layers,
    num_attention_heads: config.heads,
    num_key_value_heads: options["keyValueHeads"] ?? config.heads,
    head_dim: headWidth,
    block_size: 256,
    intermediate_size: feedForward.width,
    num_local_experts: feedForward.experts,
    num_experts_per_tok: feedForward.perToken,
    router_aux_loss_coef: feedForward.balance ?? 0,
    layer_types: writeLayerTypes(layers, kinds),
    ...writeBranch(branches.lightning, residual?.mixer?.["lightning"]),
    ...writeBranch(branches.softmax, residual?.mixer?.["softmax"]),
    ...writeBranch("mlp", residual?.feedForward),
    rms_norm_eps: config.normEps ?? 1e-5,
    hidden_act: "silu",
    tie_word_embeddings: config.tied ?? false,
    initializer_range: config.initDeviation ?? 0.02,
    rope_theta: base,
    rope_parameters: { rope_type: "default", rope_theta: base, partial_rotary_factor: width / headWidth },
    use_cache: true,
  };
}

/** Decays of blocks, which files of transformers repeat though they follow from heads and depth. */
function derived(json: ConfigJson, config: DecoderConfig): DerivedTensor[] {
  const block = new ConfigReader(json, "minimax config").count("block_size", 256);
  return expandPattern(config, { who: "minimax", causal: true }).flatMap(({ mechanism }, layer) => {
    if (mechanism.id !== "lightning") return [];
    const slopes = lightningDecays(config.heads, layer, config.layers).map((decay) => -decay);
    const tensor = (name: string, own: readonly number[], value: (slope: number, i: number) => number) => {
      const size = own.reduce((product, length) => product * length, 1);
      return {
        name: `model.layers.${layer}.self_attn.${name}`,
        shape: name === "diagonal_decay" ? [1, config.heads, ...own] : [config.heads, ...own],
        values: () =>
          Float32Array.from({ length: config.heads * size }, (_, at) =>
            value(slopes[Math.floor(at / size)]!, at % size),
          ),
      };
    };
    const distance = (i: number): number => Math.floor(i / block) - (i % block);
    return [
      tensor("slope_rate", [1, 1], (slope) => slope),
      tensor("query_decay", [block, 1], (slope, i) => Math.exp(-slope * (i + 1))),
      tensor("key_decay", [block, 1], (slope, i) => Math.exp(-slope * (block - 1 - i))),
      tensor("diagonal_decay", [block, block], (slope, i) =>
        distance(i) < 0 ? 0 : Math.exp(-slope * distance(i)),
      ),
    ];
  });
}

/** `minimax`. */
export const miniMaxFormat: PublishedFormat = {
  modelTypes: ["minimax"],
  library: "transformers",
  names: {
    model: {
      renamed: {
        "embedding.weight": "model.embed_tokens.weight",
        "blocks.*.mixerNorm.weight": "model.layers.*.input_layernorm.weight",
        "blocks.*.feedForwardNorm.weight": "model.layers.*.post_attention_layernorm.weight",
        [`${experts}.router.weight`]: `${moe}.gate.weight`,
        [`${experts}.experts.*.gate.weight`]: `${moe}.experts.*.w1.weight`,
        [`${experts}.experts.*.down.weight`]: `${moe}.experts.*.w2.weight`,
        [`${experts}.experts.*.up.weight`]: `${moe}.experts.*.w3.weight`,
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
      },
    },
    mixers: {
      lightning: { ...miniMaxNames, prefix: "model.layers.*.self_attn." },
      softmax: { ...transformersNames, prefix: "model.layers.*.self_attn." },
    },
    passedOver: ["*.rotary_emb.inv_freq"],
  },
  read: (json) => readModel(new ConfigReader(json, "minimax config")),
  write: writeModel,
  derived,
};
