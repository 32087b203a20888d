/** Feature maps: what queries and keys may pass through before they meet. */
import { ConfigError } from "../../errors.ts";
import * as all from "./all.ts";
import type { FeatureMap } from "./feature-map.ts";

export { dpfpMap } from "./dpfp.ts";
export { favorLogs, orthogonalProjection } from "./favor.ts";
export type { FeatureMap, Projection } from "./feature-map.ts";
export { unitLength } from "./unit.ts";

/** Every map of the house, in alphabetical order of their ids. */
export const featureMaps: readonly FeatureMap[] = Object.values(all).sort((a, b) => (a.id < b.id ? -1 : 1));

/**
 * The map with an id; a map object passes through.
 *
 * @throws ConfigError that lists the known ids.
 */
export function featureMap(id: string | FeatureMap): FeatureMap {
  if (typeof id !== "string") return id;
  const found = featureMaps.find((candidate) => candidate.id === id);
  if (found !== undefined) return found;
  const known = featureMaps.map((candidate) => candidate.id).join(", ");
  throw new ConfigError(`[featureMap] unknown id "${id}": expected one of ${known}`);
}
