import { ConfigError, nearestFirst } from "../errors.ts";

/** The error for a name that is not known: all known ones, the nearest first. */
export function unknownName(who: string, what: string, name: string, known: readonly string[]): ConfigError {
  return new ConfigError(
    `[${who}] unknown ${what} "${name}": expected one of ${nearestFirst(name, known).join(", ")}`,
  );
}
