import { FormatError } from "../errors.ts";
import { type CheckpointSource, readText } from "./checkpoint-source.ts";
import { quote } from "./header-json.ts";
import { openHandle, type SafetensorsFile } from "./safetensors-file.ts";
import type { TensorInfo } from "./safetensors-header.ts";

/** Where a tensor lies among the files of a model. */
export interface PlacedTensor extends TensorInfo {
  readonly file: SafetensorsFile;
}

/** The files of a model's weights, open, and what lies in them. */
export interface Shards {
  readonly files: readonly SafetensorsFile[];
  readonly tensors: ReadonlyMap<string, PlacedTensor>;
  close(): Promise<void>;
}

const single = "model.safetensors";
const index = "model.safetensors.index.json";

/**
 * Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names, and reads their headers.
 *
 * @throws FormatError for a file that is missing or not as the format says, a tensor that two shards hold or that is not
 * where the index says, and an index that points outside the folder.
 */
export async function openShards(source: CheckpointSource, signal?: AbortSignal): Promise<Shards> {
  const text = await readText(source, index, signal);
  const wanted = text === undefined ? undefined : readIndex(text, `${source.name}/${index}`);
  const names = wanted === undefined ? [single] : [...new Set(wanted.values())].sort();
  const files: SafetensorsFile[] = [];
  const close = async (): Promise<void> => {
    for (const file of files) await file.close();
  };
  try {
    for (const name of names) {
      const opened = await source.open(name, signal);
      if (opened === undefined) throw missing(source, name, wanted !== undefined);
      const options = signal === undefined ? {} : { signal };
      files.push(await openHandle(opened.name, opened.handle, opened.size, options));
    }
    const tensors = place(files);
    if (wanted !== undefined) checkIndex(wanted, names, files, source);
    return { files, tensors, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function missing(source: CheckpointSource, name: string, isShard: boolean): FormatError {
  return isShard
    ? new FormatError(
        `[load] ${source.name} lacks a shard: expected ${name}, which ${index} names, got nothing there`,
        "Download the folder again; a shard was left out.",
      )
    : new FormatError(`[load] ${source.name} has no weights: expected ${single} or ${index}, got neither`);
}

function readIndex(text: string, file: string): ReadonlyMap<string, string> {
  const refuse = (got: string): never => {
    throw new FormatError(
      `[load] ${file} is no index: expected a weight_map of tensors to files, got ${got}`,
    );
  };
  let json: { weight_map?: unknown };
  try {
    json = JSON.parse(text) as { weight_map?: unknown };
  } catch {
    return refuse("text that is not JSON");
  }
  const map = json?.weight_map;
  if (typeof map !== "object" || map === null) return refuse("none");
  const entries = Object.entries(map as Record<string, unknown>);
  for (const [tensor, shard] of entries) {
    if (typeof shard !== "string") refuse(`${JSON.stringify(shard)} for ${quote(tensor)}`);
    // A name and nothing else: no way to point at files beside or above the folder.
    if (!/^[^\\/:]+\.safetensors$/.test(shard as string)) {
      throw new FormatError(
        `[load] ${file} points outside the folder: expected plain names of .safetensors files, got ${quote(shard as string)} for ${quote(tensor)}`,
      );
    }
  }
  return new Map(entries as [string, string][]);
}

function place(files: readonly SafetensorsFile[]): Map<string, PlacedTensor> {
  const tensors = new Map<string, PlacedTensor>();
  for (const file of files) {
    for (const [name, info] of file.tensors) {
      const twin = tensors.get(name);
      if (twin !== undefined) {
        throw new FormatError(
          `[load] a tensor is there twice: expected ${quote(name)} in one file, got it in ${twin.file.name} and ${file.name}`,
        );
      }
      tensors.set(name, { ...info, file });
    }
  }
  return tensors;
}

function checkIndex(
  wanted: ReadonlyMap<string, string>,
  names: readonly string[],
  files: readonly SafetensorsFile[],
  source: CheckpointSource,
): void {
  for (const [tensor, shard] of wanted) {
    const file = files[names.indexOf(shard)]!;
    if (file.tensors.has(tensor)) continue;
    throw new FormatError(
      `[load] ${source.name} is not as its index says: expected ${quote(tensor)} in ${shard}, got none`,
    );
  }
}
