import { ConfigError } from "../errors.ts";
import type { Mechanism } from "../mechanisms/mechanism.ts";
import { mechanism, mechanisms } from "../mechanisms/registry.ts";

/** A mixing layer of a pattern: an id, an id with options of its own, or a mechanism made elsewhere. */
export type MixerChoice =
  | string
  | Mechanism
  | ({ readonly id: string | Mechanism } & Readonly<Record<string, unknown>>);

/** The feed-forward half of a block. */
export type FeedForwardConfig =
  | { readonly kind: "none" }
  | {
      readonly kind: "gated";
      readonly width: number;
      readonly activation?: "silu" | "gelu";
      readonly bias?: boolean;
    }
  | {
      readonly kind: "plain";
      readonly width: number;
      readonly activation?: "gelu" | "relu";
      readonly bias?: boolean;
    }
  | ExpertsConfig;

/** A mixture of experts in place of one feed-forward. */
export interface ExpertsConfig {
  readonly kind: "experts";
  readonly experts: number;
  /** Experts that each token visits. */
  readonly perToken: number;
  readonly width: number;
  readonly router?: "softmax" | "sigmoid";
  /** Weights of the visited experts add up to 1; true unless given. */
  readonly renormalize?: boolean;
  readonly routedScale?: number;
  /** Sigmoid router: experts are chosen inside the best groups only. */
  readonly groups?: number;
  readonly groupsPerToken?: number;
  /** Width of the expert that every token visits; none unless given. */
  readonly sharedWidth?: number;
  readonly sharedGate?: boolean;
  /** Blocks before this one have a gated feed-forward of `denseWidth` instead. */
  readonly denseLayers?: number;
  readonly denseWidth?: number;
  /** Weight of the load-balancing loss; 0 unless given. */
  readonly balance?: number;
}

/** How positions enter. Rotary ones enter inside the mixers that use them. */
export type PositionConfig =
  | { readonly kind: "none" }
  | { readonly kind: "rotary"; readonly base?: number; readonly width?: number }
  | { readonly kind: "sinusoidal" }
  | { readonly kind: "learned"; readonly length: number };

/** A residual branch: x ← α·(x or its norm) + β·branch. */
export interface ResidualConfig {
  readonly alpha: number;
  readonly beta: number;
  /** The branch's normalised input instead of x itself, as MiniMax has it. */
  readonly fromNorm?: boolean;
}

/** What encoders and decoders have in common, as data. */
export interface StackConfig {
  readonly vocabularySize: number;
  readonly width: number;
  readonly layers: number;
  /** Mixers of the first layers, repeated to all. */
  readonly pattern: readonly MixerChoice[];
  readonly heads: number;
  readonly feedForward?: FeedForwardConfig;
  readonly norm?: "rms" | "layer";
  readonly normEps?: number;
  /** RMS norms weigh by 1 + w. */
  readonly zeroCentered?: boolean;
  readonly positions?: PositionConfig;
  readonly dropout?: number;
  /** Deviation of the embedding's start; 0.02 unless given. */
  readonly initDeviation?: number;
  /** Options that every mixer gets. */
  readonly mixer?: Readonly<Record<string, unknown>>;
  readonly residual?: {
    readonly mixer?: Readonly<Record<string, ResidualConfig>>;
    readonly feedForward?: ResidualConfig;
  };
}

/** A decoder, as data. */
export interface DecoderConfig extends StackConfig {
  /** The output layer shares the table of the input. */
  readonly tied?: boolean;
  /** Mixer of every block that reads a memory, such as the output of an encoder; none unless given. */
  readonly cross?: MixerChoice;
}

/** An encoder, as data: every token sees all others. */
export type EncoderConfig = StackConfig;

/** A mixer of one layer: the mechanism and its own options. */
export interface LayerChoice {
  readonly mechanism: Mechanism;
  readonly options: Readonly<Record<string, unknown>>;
}

/** Who builds a model, and what its layers must be able to do. */
export interface Reach {
  readonly who: string;
  /** Tokens see what came before them, and not all there is. */
  readonly causal: boolean;
}

/**
 * The mixer of every layer, the pattern repeated.
 *
 * @throws ConfigError for an empty pattern, an unknown id (with the nearest known ones), a mechanism that cannot do what
 * the model needs, or sizes that make no model.
 */
export function expandPattern(config: StackConfig, reach: Reach): readonly LayerChoice[] {
  checkSizes(config, reach.who);
  return Array.from({ length: config.layers }, (_, i) =>
    layerChoice(config.pattern[i % config.pattern.length]!, reach),
  );
}

/** One mixer as a mechanism and its options. */
export function layerChoice(choice: MixerChoice, { who, causal }: Reach): LayerChoice {
  const found = readChoice(choice);
  const { id, traits } = found.mechanism;
  if (causal ? traits.causal : traits.full) return found;
  const fitting = mechanisms.filter((known) => (causal ? known.traits.causal : known.traits.full));
  throw new ConfigError(
    `[${who}] ${id} ${causal ? "is not causal" : "sees only what came before"}: expected one of ${fitting.map((known) => known.id).join(", ")}`,
  );
}

function readChoice(choice: MixerChoice): LayerChoice {
  if (typeof choice === "string") return { mechanism: mechanism(choice), options: {} };
  if ("forms" in choice) return { mechanism: choice as Mechanism, options: {} };
  const { id, ...options } = choice;
  return { mechanism: mechanism(id), options };
}

function checkSizes(config: StackConfig, who: string): void {
  if (config.pattern.length === 0)
    throw new ConfigError(`[${who}] the pattern names at least one mixer, got none`);
  for (const name of ["vocabularySize", "width", "layers", "heads"] as const) {
    if (!Number.isInteger(config[name]) || config[name] < 1) {
      throw new ConfigError(`[${who}] ${name} is a whole number >= 1, got ${config[name]}`);
    }
  }
  if (config.dropout !== undefined && !(config.dropout >= 0 && config.dropout < 1)) {
    throw new ConfigError(`[${who}] dropout is a share: expected 0 <= p < 1, got ${config.dropout}`);
  }
}
