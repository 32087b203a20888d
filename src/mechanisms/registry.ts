import { ConfigError, nearestFirst } from "../errors.ts";
import * as all from "./all.ts";
import type { Mechanism } from "./mechanism.ts";

/** Every mechanism of the house, in alphabetical order. */
export const mechanisms: readonly Mechanism[] = Object.values(all as Record<string, Mechanism>).sort(
  (a, b) => (a.id < b.id ? -1 : 1),
);

/**
 * The mechanism with an id; a mechanism object passes through.
 *
 * @throws ConfigError that names the known ids, nearest first.
 */
export function mechanism(id: string | Mechanism): Mechanism {
  if (typeof id !== "string") return id;
  const found = mechanisms.find((candidate) => candidate.id === id);
  if (found !== undefined) return found;
  const known = nearestFirst(
    id,
    mechanisms.map((candidate) => candidate.id),
  );
  throw new ConfigError(`[mechanism] unknown id "${id}": expected one of ${known.join(", ")}`);
}
