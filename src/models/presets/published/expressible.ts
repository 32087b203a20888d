import { UnsupportedError } from "../../../errors.ts";
import type { DecoderConfig, FeedForwardConfig, LayerChoice } from "../../config.ts";
import { expandPattern } from "../../config.ts";

/** What a format can say of a decoder beyond its sizes. */
export interface Expressible {
  /** Mechanisms by id with the layer options that the format has words for. */
  readonly mixers: Readonly<Record<string, readonly string[]>>;
  readonly feedForward: readonly FeedForwardConfig["kind"][];
  /** Rotary positions of mixers that turn by the model's. */
  readonly rotary?: boolean;
  readonly zeroCentered?: boolean;
  readonly residual?: boolean;
}

/**
 * Layers of a decoder with all options that they get, once the format has words for each.
 *
 * @throws UnsupportedError that names what the format cannot say.
 */
export function expressed(
  format: string,
  config: DecoderConfig,
  can: Expressible,
): readonly (LayerChoice & { readonly options: Readonly<Record<string, unknown>> })[] {
  const refuse = (what: string): never => {
    throw new UnsupportedError(
      `[${format}] the format has no words for the model: it has ${what}`,
      "Save the run folder, or choose another format.",
    );
  };
  const feeding = config.feedForward ?? { kind: "gated", width: 0 };
  if (!can.feedForward.includes(feeding.kind)) refuse(`a feed-forward of kind ${feeding.kind}`);
  if ("bias" in feeding && feeding.bias) refuse("feed-forwards with a bias");
  if (feeding.kind === "gated" && (feeding.activation ?? "silu") !== "silu")
    refuse(`the activation ${feeding.activation}`);
  if ((config.norm ?? "rms") !== "rms") refuse(`norms of kind ${config.norm}`);
  if ((config.zeroCentered ?? false) !== (can.zeroCentered ?? false))
    refuse(`norms that weigh by ${config.zeroCentered ? "1 + w" : "w"}`);
  const positions = config.positions?.kind ?? "none";
  if (positions === "sinusoidal" || positions === "learned") refuse(`${positions} positions`);
  if (config.cross !== undefined) refuse("blocks that read a memory");
  if (config.residual !== undefined && !can.residual) refuse("weighted residual branches");
  return expandPattern(config, { who: format, causal: true }).map(({ mechanism, options }) => {
    const known = can.mixers[mechanism.id] ?? refuse(`layers of ${mechanism.id}`);
    const all: Record<string, unknown> = { heads: config.heads, ...config.mixer, ...options };
    const unknown = Object.keys(all).find(
      (name) => name !== "heads" && all[name] !== undefined && !known.includes(name),
    );
    if (unknown !== undefined) refuse(`the option ${unknown} of ${mechanism.id}`);
    return { mechanism, options: all };
  });
}

/** The options that all layers have alike; refuses layers that differ. */
export function uniform(format: string, layers: readonly LayerChoice[]): Readonly<Record<string, unknown>> {
  const [first] = layers;
  const same = (one: LayerChoice): boolean => JSON.stringify(one.options) === JSON.stringify(first!.options);
  if (layers.every(same)) return first!.options;
  throw new UnsupportedError(
    `[${format}] the format has no words for the model: its layers have different options`,
  );
}
