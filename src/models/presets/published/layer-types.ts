/** The entries of config.json that models of mixed layers have in common. */
import { FormatError } from "../../../errors.ts";
import type { LayerChoice, MixerChoice, PositionConfig } from "../../config.ts";
import type { ConfigReader } from "./config-json.ts";

/**
 * The mixer of every layer by `layer_types`; without it every `interval`-th layer is of the last kind.
 *
 * @throws FormatError for a list of another length or a kind that is not known.
 */
export function layerTypes(
  config: ConfigReader,
  layers: number,
  kinds: Readonly<Record<string, MixerChoice>>,
  interval: number,
): readonly MixerChoice[] {
  const types = config.list<string>("layer_types", "string");
  const names = Object.keys(kinds);
  if (types === undefined) {
    if (layers > 65_536) throw new FormatError(`[config] num_hidden_layers makes no model: got ${layers}`);
    return Array.from({ length: layers }, (_, i) => kinds[names[(i + 1) % interval === 0 ? 1 : 0]!]!);
  }
  if (types.length !== layers) {
    throw new FormatError(
      `[config] layer_types makes no model: expected an entry for each of ${layers} layers, got ${types.length}`,
    );
  }
  return types.map((type) => {
    const kind = Object.hasOwn(kinds, type) ? kinds[type] : undefined;
    if (kind !== undefined) return kind;
    throw new FormatError(
      `[config] layer_types names a kind that is not known: expected ${names.join(" or ")}, got ${JSON.stringify(type)}`,
    );
  });
}

/** `layer_types` of layers by the names that their mechanisms have in the format. */
export function writeLayerTypes(
  layers: readonly LayerChoice[],
  names: Readonly<Record<string, string>>,
): readonly string[] {
  return layers.map(({ mechanism }) => names[mechanism.id]!);
}

/** Rotary positions in old and new spelling: a base, and the share or number of a head's channels that turn. */
export function readRotary(config: ConfigReader, headWidth: number, usualShare: number): PositionConfig {
  const newer = config.inner("rope_parameters");
  newer.only("rope_type", "default");
  config.only("rope_scaling");
  const base = newer.number("rope_theta", config.number("rope_theta", 10_000));
  const width = config.json["rotary_dim"] === undefined ? undefined : config.count("rotary_dim");
  const share = newer.number("partial_rotary_factor", config.number("partial_rotary_factor", usualShare));
  return { kind: "rotary", base, width: width ?? Math.floor(headWidth * share) };
}
