import { ConfigError } from "../errors.ts";
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
  const known = mechanisms.map((candidate) => candidate.id).sort((a, b) => distance(a, id) - distance(b, id));
  throw new ConfigError(`[mechanism] unknown id "${id}": expected one of ${known.join(", ")}`);
}

/** Levenshtein distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}
