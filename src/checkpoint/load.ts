import type { Device } from "../device/device.ts";
import { ConfigError, FormatError } from "../errors.ts";
import { Decoder } from "../models/decoder.ts";
import {
  type ConfigJson,
  formatOf,
  type PublishedFormat,
  parseConfig,
} from "../models/presets/published/index.ts";
import {
  type CheckpointSource,
  folderSource,
  listSource,
  type NamedBytes,
  openOnDisk,
  readText,
} from "./checkpoint-source.ts";
import { type FillOptions, type FoundTensor, fill } from "./fill.ts";
import { quote } from "./header-json.ts";
import { type HttpOptions, httpSource, isAddress, openAddress } from "./http-source.ts";
import { PublishedModel } from "./published-model.ts";
import { openShards, type PlacedTensor } from "./shards.ts";
import { type PlannedTensor, planTensors } from "./tensor-plan.ts";
import { readTextParts } from "./text-parts.ts";

/** How a published model is loaded. */
export interface LoadOptions extends FillOptions, HttpOptions {
  readonly device: Device;
}

/** Where a published model lies: a folder on disk or below an address, or its files one by one. */
export type CheckpointFiles = string | readonly (string | NamedBytes | File)[];

/** A description that was read, without weights. */
export interface Description {
  readonly source: CheckpointSource;
  readonly json: ConfigJson;
  readonly format: PublishedFormat;
}

/**
 * Loads a model of the family as Hugging Face publishes it: `config.json` with `model.safetensors` or its shards, and the
 * tokenizer where there is one, from a folder, from below an address (in ranges, kept in a `cache` folder where one is
 * given), or file by file. Every tensor's name and shape is compared with what the model declares before memory is
 * taken; F16 and BF16 become float32 on the way.
 *
 * Weights stream from the file to the device: beside them a few megabytes are in use. Whatever goes wrong, the device's
 * memory is as it was before.
 *
 * @throws FormatError for files that are missing, altered or make no model, naming what is missing or left over;
 * UnsupportedError for models that are not built here; NumericsError for weights that are NaN; OutOfMemoryError.
 * @example
 * ```ts
 * import { openWasm } from "linnet";
 * import { load } from "linnet/checkpoint";
 *
 * const device = await openWasm();
 * const model = await load("tests/golden/models/qwen3.5-text", { device });
 * const { ids } = await model.session().generate({ prompt: "52 109 137", maxNewTokens: 5, temperature: 0 });
 * console.log(ids);
 * device.close();
 * ```
 */
export async function load(files: CheckpointFiles, options: LoadOptions): Promise<PublishedModel> {
  const { device, signal } = options;
  const { source, json, format } = await describe(files, options);
  const shards = await openShards(source, signal);
  let decoder: Decoder | undefined;
  try {
    decoder = buildDecoder(format, json, source, shards.tensors.size);
    const found = findTensors(decoder, format, json, shards.tensors, source);
    for (const parameter of decoder.parameters()) parameter.allocate(device);
    await fill(device, found, options);
    const spellings = new Map(found.map(({ name, planned }) => [planned.names[0]!, name]));
    const text = await readTextParts(source, json, decoder.config.vocabularySize, signal);
    return new PublishedModel({ decoder, device, format, json, spellings, ...text });
  } catch (error) {
    decoder?.dispose();
    throw error;
  } finally {
    await shards.close();
  }
}

/** What lies in a folder or list: its configuration and format. */
export async function describe(
  files: CheckpointFiles,
  options: HttpOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<Description> {
  const { signal } = options;
  const source = await sourceOf(files, options);
  const text = await readText(source, "config.json", signal);
  if (text === undefined) {
    throw new FormatError(
      `[load] ${source.name} holds no published model: expected config.json in it, got none`,
    );
  }
  const json = parseConfig(text, `${source.name}/config.json`);
  return { source, json, format: formatOf(json, `${source.name}/config.json`) };
}

async function sourceOf(files: CheckpointFiles, options: HttpOptions): Promise<CheckpointSource> {
  if (typeof files !== "string") {
    return listSource(files, (path, signal) =>
      isAddress(path) ? openAddress(path, options, signal) : openOnDisk(path),
    );
  }
  return isAddress(files) ? httpSource(files, options) : folderSource(files);
}

/** The decoder of a configuration, its sizes believable for as many tensors. */
export function buildDecoder(
  format: PublishedFormat,
  json: ConfigJson,
  source: CheckpointSource,
  tensors: number,
): Decoder {
  const refuse = (why: string, cause?: unknown): never => {
    throw new FormatError(`[load] ${source.name}/config.json makes no model: ${why}`, undefined, { cause });
  };
  try {
    const config = format.read(json);
    const { feedForward } = config;
    const experts = feedForward?.kind === "experts" ? feedForward.experts : 1;
    // Each layer and each expert has weights of its own.
    if (Math.max(config.layers, experts) > tensors) {
      return refuse(
        `it has ${config.layers} layers${experts > 1 ? ` and ${experts} experts` : ""}, the files have ${tensors} tensors`,
      );
    }
    return new Decoder(config);
  } catch (error) {
    if (error instanceof ConfigError) return refuse(error.message, error);
    throw error;
  }
}

/** Every planned tensor with its place in the files; refuses files that hold another model. */
export function findTensors(
  decoder: Decoder,
  format: PublishedFormat,
  json: ConfigJson,
  tensors: ReadonlyMap<string, PlacedTensor>,
  source: CheckpointSource,
): readonly FoundTensor[] {
  const left = new Set(tensors.keys());
  const found: FoundTensor[] = [];
  const missing: string[] = [];
  const wrong: string[] = [];
  for (const planned of planTensors(decoder, format.names)) {
    const name = planned.names.find((spelling) => tensors.has(spelling));
    if (name === undefined) {
      missing.push(planned.names[0]!);
      continue;
    }
    left.delete(name);
    const placed = tensors.get(name)!;
    const problem = problemOf(planned, placed);
    if (problem !== undefined) wrong.push(`${quote(name)} ${problem}`);
    else found.push({ name, planned, placed });
  }
  for (const { name } of format.derived?.(json, decoder.config) ?? []) left.delete(name);
  const isPassedOver = passedOver(format, decoder.config.tied ?? false);
  for (const name of [...left]) if (isPassedOver(name)) left.delete(name);
  const problems = [
    ...listed("of another kind", wrong),
    ...listed("missing", missing.map(quote)),
    ...listed("left over", [...left].map(quote)),
  ];
  if (problems.length === 0) return found;
  throw new FormatError(
    `[load] the weights of ${source.name} are not those of its config.json (${format.modelTypes[0]}): ${problems.join("; ")}`,
  );
}

function problemOf({ shape }: PlannedTensor, placed: PlacedTensor): string | undefined {
  const show = (axes: readonly number[]): string => `[${axes.join(", ")}]`;
  if (!/^(BF16|F16|F32|F64)$/.test(placed.dtype)) return `is ${placed.dtype}, expected F32, F16, BF16 or F64`;
  if (placed.shape.join() === shape.join()) return undefined;
  return `is ${show(placed.shape)}, expected ${show(shape)}`;
}

function listed(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > 8 ? ` and ${names.length - 8} more` : "";
  return [`${names.length} ${what}: ${names.slice(0, 8).join(", ")}${more}`];
}

function passedOver({ names }: PublishedFormat, isTied: boolean): (name: string) => boolean {
  const head = names.model.renamed?.["head.weight"];
  const patterns = [...(names.passedOver ?? []), ...(isTied && typeof head === "string" ? [head] : [])].map(
    (pattern) => new RegExp(`^${pattern.replace(/[.]/g, "\\.").replaceAll("*", ".*")}$`),
  );
  return (name) => patterns.some((pattern) => pattern.test(name));
}
