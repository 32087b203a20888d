import { ConfigError, nearestFirst } from "../../errors.ts";
import type { Preset } from "../preset.ts";
import * as all from "./all.ts";

export type { Preset } from "../preset.ts";

/** Every preset, by id. */
export const presets: readonly Preset[] = Object.values(all).sort((a, b) => (a.id < b.id ? -1 : 1));

/**
 * The preset with an id.
 *
 * @throws ConfigError that names the known ones, nearest first.
 */
export function preset(id: string): Preset {
  const found = presets.find((candidate) => candidate.id === id);
  if (found !== undefined) return found;
  const known = nearestFirst(
    id,
    presets.map((candidate) => candidate.id),
  );
  throw new ConfigError(`[preset] unknown preset "${id}": expected one of ${known.join(", ")}`);
}
