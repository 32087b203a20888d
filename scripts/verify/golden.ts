/** Golden files as problems: inputs, what must come out, and the rule they were computed by. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { readSafetensors } from "../../src/checkpoint/safetensors.ts";
import { toFloat64 } from "../../src/checkpoint/safetensors-values.ts";
import { FormatError } from "../../src/errors.ts";
import type { FormOptions, Values } from "../../src/mechanisms/mechanism.ts";

/** Arrays by symbol. */
export type NamedValues = Readonly<Record<string, Values>>;

/** One golden file. */
export interface Golden {
  readonly file: string;
  readonly op: string;
  readonly featureMap: string | undefined;
  readonly normalize: boolean;
  readonly options: FormOptions;
  readonly inputs: NamedValues;
  readonly outputs: NamedValues;
  readonly cotangents: NamedValues;
  readonly gradients: NamedValues;
}

interface Metadata {
  readonly op: string;
  readonly scale?: number | string;
  readonly eps?: number;
  readonly causal?: boolean;
  readonly featureMap?: string;
  readonly normalize?: boolean;
}

/** Paths of the golden files of a directory, in order; one file may be named instead. */
export function goldenPaths(path: string): string[] {
  if (!existsSync(path)) {
    throw new FormatError(
      `[verify] ${path} is missing: expected a directory of golden files, got nothing there`,
    );
  }
  if (statSync(path).isFile()) return [path];
  const found = readdirSync(path).filter((name) => name.endsWith(".safetensors"));
  if (found.length > 0) return found.sort().map((name) => join(path, name));
  throw new FormatError(
    `[verify] ${path} has no golden files: expected names that end in .safetensors, got none`,
  );
}

/**
 * Reads one golden file.
 *
 * @throws FormatError for a file that is truncated, is not safetensors, or does not say what it holds.
 */
export function readGolden(path: string): Golden {
  const file = basename(path).replace(/\.safetensors$/, "");
  const { metadata, tensors } = readSafetensors(readFileSync(path), { name: path });
  const golden = parse(path, metadata["golden"]);
  const named = (prefix: string): NamedValues => {
    const result: Record<string, Values> = {};
    for (const [name, entry] of tensors) {
      if (!name.startsWith(prefix)) continue;
      result[name.slice(prefix.length)] = { data: toFloat64(entry), shape: entry.shape };
    }
    return result;
  };
  const [inputs, outputs] = [named("in."), named("out.")];
  if (inputs["q"] === undefined || outputs["output"] === undefined) {
    throw new FormatError(
      `[verify] ${path} is foreign: expected tensors in.q and out.output, got none of these names`,
    );
  }
  return {
    ...{ file, op: golden.op, featureMap: golden.featureMap, normalize: golden.normalize ?? false },
    ...{ inputs, outputs, cotangents: named("ct."), gradients: named("grad.") },
    options: optionsOf(golden, inputs["q"].shape.at(-1)!),
  };
}

/** What a file says of itself and not of the op. */
const descriptions = [
  "op",
  "featureMap",
  "normalize",
  "shape",
  "layout",
  "state",
  "strength",
  "source",
  "unitKeys",
];

/** What multiplies q·k, as a file writes it: a number, or a power of K on q alone or on q and k both. */
function scaleOf(scale: number | string, keyWidth: number): number {
  if (scale === "K^-0.5" || scale === "K^-0.25 on q and on k") return keyWidth ** -0.5;
  return Number(scale);
}

/** Everything else is an option of the op, under its name. */
function optionsOf({ scale, eps, causal, ...rest }: Metadata, keyWidth: number): FormOptions {
  const own = Object.entries(rest).filter(([name]) => !descriptions.includes(name));
  return {
    ...Object.fromEntries(own),
    ...(scale === undefined ? {} : { scale: scaleOf(scale, keyWidth) }),
    ...(eps === undefined ? {} : { eps }),
    ...(causal === undefined ? {} : { causal }),
  };
}

function parse(path: string, text: string | undefined): Metadata {
  let golden: unknown;
  try {
    golden = text === undefined ? undefined : JSON.parse(text);
  } catch {
    golden = undefined;
  }
  if (typeof golden === "object" && golden !== null && typeof (golden as Metadata).op === "string") {
    return golden as Metadata;
  }
  throw new FormatError(
    `[verify] ${path} is foreign: expected metadata "golden" with an op, got ${text === undefined ? "none" : "something else"}`,
  );
}
