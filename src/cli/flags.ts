import { type Command, InvalidArgumentError, Option } from "commander";

/** A whole number >= 1. */
export function positiveInteger(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1)
    throw new InvalidArgumentError("a whole number >= 1 is expected.");
  return value;
}

/** A finite number. */
export function finiteNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("a number is expected.");
  return value;
}

/** Adds the flags of every command that computes. */
export function deviceFlags(command: Command): Command {
  return command
    .option("--threads <number>", "threads that compute (default: one a core)", positiveInteger)
    .addOption(
      new Option(
        "--tier <level>",
        "SIMD level (default: c on Node 24 and newer, else the best that is stable)",
      ).choices(["auto", "a", "b", "c"]),
    );
}

/** A whole number from 0 to the largest that is exact: seeds. */
export function wholeNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isSafeInteger(value) || value < 0)
    throw new InvalidArgumentError("a whole number >= 0 is expected.");
  return value;
}

/** Whole numbers >= 1 parted by commas, ascending. */
export function positiveIntegers(text: string): number[] {
  return text
    .split(",")
    .map(positiveInteger)
    .sort((a, b) => a - b);
}
