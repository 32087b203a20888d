import type { Decoder } from "../models/decoder.ts";
import {
  type ConfigJson,
  formatConfig,
  formatFor,
  type PublishedFormat,
} from "../models/presets/published/index.ts";
import { nodeFiles } from "./node-files.ts";
import type { TensorSource } from "./safetensors.ts";
import { saveSafetensors } from "./safetensors-file.ts";
import { fromValues } from "./safetensors-values.ts";
import { type PlannedTensor, planTensors } from "./tensor-plan.ts";

/** How a model is saved. */
export interface SaveOptions {
  /** Its format by `model_type`; the first that has words for the model unless given. */
  readonly modelType?: string;
  /** What weights are rounded to; F32 unless given. */
  readonly dtype?: "F32" | "BF16" | "F16";
  readonly signal?: AbortSignal;
  /** Entries of config.json beyond those of the model, such as `eos_token_id`. */
  readonly entries?: ConfigJson;
  /** Files written beside it by name, such as `tokenizer.json`. */
  readonly texts?: ReadonlyMap<string, string>;
  /** What a model was loaded with: its format, configuration, spellings and text files are written again. */
  readonly published?: {
    readonly format: PublishedFormat;
    readonly json: ConfigJson;
    readonly spellings: ReadonlyMap<string, string>;
    readonly texts: ReadonlyMap<string, string>;
  };
}

const dtypes = { F32: "float32", BF16: "bfloat16", F16: "float16" } as const;

/**
 * Writes a decoder as a folder that the library of its format opens: `config.json`, `model.safetensors`, and what
 * belongs to its text. Node only. Tensors are read from the device one by one.
 *
 * @throws UnsupportedError where no published format has words for the model, naming what each lacks; FormatError where
 * the system refuses to write.
 * @example
 * ```ts no-run
 * import { save } from "linnet/checkpoint";
 * import { Decoder } from "linnet/models";
 *
 * declare const model: Decoder;
 * await save("tiny-gla", model, { modelType: "gla" });
 * ```
 */
export async function save(folder: string, decoder: Decoder, options: SaveOptions = {}): Promise<void> {
  const { published, modelType, dtype = "F32", signal } = options;
  const isOwn =
    published !== undefined && (modelType === undefined || published.json["model_type"] === modelType);
  const { format, json } = isOwn ? published : formatFor(decoder.config, modelType);
  const config = textConfig(json);
  // A part of a larger model is written as a model of its own, under the names of one.
  const spellings = isOwn && config === json ? published.spellings : new Map<string, string>();
  const files = await nodeFiles("save");
  await files.mkdir(folder, { recursive: true });
  const sources = new Map<string, TensorSource>();
  for (const planned of planTensors(decoder, format.names)) {
    const name = spellings.get(planned.names[0]!) ?? planned.names[0]!;
    sources.set(name, { dtype, shape: planned.shape, bytes: () => bytesOf(planned, dtype) });
  }
  for (const { name, shape, values } of format.derived?.(json, decoder.config) ?? []) {
    sources.set(name, { dtype, shape, bytes: () => fromValues(values(), shape, dtype).bytes });
  }
  await saveSafetensors(
    `${folder}/model.safetensors`,
    sources,
    { format: "pt" },
    signal === undefined ? {} : { signal },
  );
  for (const [name, text] of [...(published?.texts ?? []), ...(options.texts ?? [])]) {
    await files.writeFile(`${folder}/${name}`, text);
  }
  const key = "torch_dtype" in config ? "torch_dtype" : "dtype";
  const entries = { ...config, ...options.entries, [key]: dtypes[dtype] };
  await files.writeFile(`${folder}/config.json`, formatConfig(entries));
}

/** The part of a configuration that describes the text model, which is all that is saved. */
function textConfig(json: ConfigJson): ConfigJson {
  const inner = json["text_config"];
  if (typeof inner !== "object" || inner === null) return json;
  return inner as ConfigJson;
}

async function bytesOf(planned: PlannedTensor, dtype: "F32" | "BF16" | "F16"): Promise<Uint8Array> {
  const { shape, parts } = planned;
  if (parts.length === 1) return fromValues(await parts[0]!.value.data(), shape, dtype).bytes;
  const values = new Map<unknown, Awaited<ReturnType<(typeof parts)[0]["value"]["data"]>>>();
  for (const part of parts) values.set(part, await part.value.data());
  const segments = planned.segments();
  const all = new Float64Array(segments.at(-1)!.end);
  for (const { part, begin, end, offset } of segments) {
    all.set(values.get(part)!.subarray(offset, offset + end - begin), begin);
  }
  return fromValues(all, shape, dtype).bytes;
}
