/** Published models against the numbers that the libraries they come from compute. */
import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { FormatError, UnsupportedError } from "../errors.ts";
import { load } from "./load.ts";
import { nodeFiles } from "./node-files.ts";
import type { PublishedModel } from "./published-model.ts";
import { readSafetensors } from "./safetensors.ts";
import { toFloat64, toInt32 } from "./safetensors-values.ts";

/** One comparison of a model with its golden values. */
export interface ModelRow {
  readonly model: string;
  /** How the tokens were worked through, or `greedy` for the continuation: the share of other tokens stands there. */
  readonly check: string;
  readonly relativeRms: number;
  readonly ok: boolean;
}

/** A folder that was passed over. */
export interface PassedModel {
  readonly model: string;
  readonly why: string;
}

/** Both sides compute in float32 through a few layers; the golden side's own error is near 1e-5. */
export const modelBound = 2e-5;

const pieces = [1, 3, 7, 16];

/** What another library computed with a model. */
interface Golden {
  readonly ids: Int32Array;
  readonly batch: number;
  readonly time: number;
  readonly logits: Float64Array;
  readonly prompt: readonly number[] | undefined;
  readonly continuation: readonly number[] | undefined;
}

/** Folders below a path that hold a model with golden values: the path itself, or those in it. */
export async function modelFolders(path: string): Promise<readonly string[]> {
  const files = await nodeFiles("verify");
  const entries = await files.readdir(path).catch((cause: Error) => {
    throw new FormatError(
      `[verify] ${path} is missing: expected a folder of models, got ${cause.message}`,
      undefined,
      {
        cause,
      },
    );
  });
  const root = path.replace(/[\\/]+$/, "");
  if (entries.includes("golden.safetensors")) return [root];
  const folders: string[] = [];
  for (const entry of entries.sort()) {
    const own = await files.readdir(`${root}/${entry}`).catch(() => [] as string[]);
    if (own.includes("golden.safetensors")) folders.push(`${root}/${entry}`);
  }
  if (folders.length > 0) return folders;
  throw new FormatError(
    `[verify] ${path} has no models: expected folders with golden.safetensors beside config.json, got none`,
  );
}

/**
 * Loads the model of a folder and compares its logits in every form with the golden ones: whole, in pieces of several
 * lengths, step by step, and the greedy continuation token for token. A model that is not built yet says why.
 */
export async function verifyModel(
  folder: string,
  device: Device,
  signal?: AbortSignal,
): Promise<readonly ModelRow[] | PassedModel> {
  const name = folder.split(/[\\/]/).at(-1)!;
  const golden = await readGolden(folder);
  let model: PublishedModel;
  try {
    model = await load(folder, signal === undefined ? { device } : { device, signal });
  } catch (error) {
    if (error instanceof UnsupportedError) return { model: name, why: error.message };
    throw error;
  }
  try {
    const rows: ModelRow[] = [];
    const note = (check: string, relativeRms: number, bound = modelBound): void => {
      rows.push({ model: name, check, relativeRms, ok: relativeRms <= bound });
    };
    note("whole", distance(wholeLogits(model, golden), golden.logits));
    for (const piece of pieces)
      note(`pieces of ${piece}`, distance(pieceLogits(model, golden, piece), golden.logits));
    note("step by step", distance(stepLogits(model, golden), golden.logits));
    if (golden.continuation !== undefined) note("greedy", await greedyDistance(model, golden), 0);
    return rows;
  } finally {
    model.dispose();
  }
}

async function readGolden(folder: string): Promise<Golden> {
  const files = await nodeFiles("verify");
  const path = `${folder}/golden.safetensors`;
  const { tensors } = readSafetensors(await files.readFile(path), { name: path });
  const [ids, logits] = [tensors.get("input_ids"), tensors.get("logits")];
  if (ids?.shape.length !== 2 || logits?.shape.length !== 3) {
    throw new FormatError(
      `[verify] ${path} is foreign: expected input_ids [B, T] and logits [B, T, vocabulary]`,
    );
  }
  const text = await files.readFile(`${folder}/golden.json`, "utf8").catch(() => "{}");
  const more = JSON.parse(text) as { greedy_prompt?: number[]; greedy_continuation?: number[] };
  return {
    ids: toInt32(ids),
    batch: ids.shape[0]!,
    time: ids.shape[1]!,
    logits: toFloat64(logits),
    prompt: more.greedy_prompt,
    continuation: more.greedy_continuation,
  };
}

function wholeLogits({ decoder, device }: PublishedModel, { ids, batch, time }: Golden): ArrayLike<number> {
  return scope(device, () =>
    noGrad(() => decoder.forward(tensor(device, ids, [batch, time], { dtype: "int32" })).logits.dataSync()),
  );
}

/** All rows of the batch piece by piece, their states carried on. */
function pieceLogits(
  { decoder, device }: PublishedModel,
  { ids, batch, time, logits }: Golden,
  length: number,
): Float64Array {
  const all = new Float64Array(logits.length);
  const width = logits.length / (batch * time);
  const slots = Array.from({ length: batch }, (_, b) => b);
  const states = decoder.createState(device, batch);
  try {
    for (let from = 0; from < time; from += length) {
      const count = Math.min(length, time - from);
      const piece = Int32Array.from(
        { length: batch * count },
        (_, i) => ids[Math.floor(i / count) * time + from + (i % count)]!,
      );
      const values = scope(device, () =>
        noGrad(() => {
          const tokens = tensor(device, piece, [batch, count], { dtype: "int32" });
          return decoder.forward(tokens, { state: { states, slots } }).logits.dataSync();
        }),
      );
      for (let b = 0; b < batch; b++) {
        const rows = values.subarray(b * count * width, (b + 1) * count * width);
        all.set(rows, (b * time + from) * width);
      }
    }
  } finally {
    states.dispose();
  }
  return all;
}

/** Each row in a session of its own, token by token. */
function stepLogits(model: PublishedModel, { ids, batch, time, logits }: Golden): Float64Array {
  const all = new Float64Array(logits.length);
  const width = logits.length / (batch * time);
  for (let b = 0; b < batch; b++) {
    const session = model.session();
    for (let t = 0; t < time; t++) all.set(session.step(ids[b * time + t]!), (b * time + t) * width);
    session.dispose();
  }
  return all;
}

/** The share of tokens that differ from the golden continuation. */
async function greedyDistance(model: PublishedModel, { prompt, continuation }: Golden): Promise<number> {
  const session = model.session();
  const given = { prompt: prompt ?? [], temperature: 0, stopTokens: [], maxNewTokens: continuation!.length };
  const { ids } = await session.generate(given);
  session.dispose();
  return continuation!.filter((id, i) => ids[i] !== id).length / continuation!.length;
}

/** ‖got − expected‖ / ‖expected‖, infinite where a number is none. */
function distance(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (got.length !== expected.length) return Number.POSITIVE_INFINITY;
  let error = 0;
  let size = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (got[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  return Number.isFinite(error) ? Math.sqrt(error / size) : Number.POSITIVE_INFINITY;
}
