import { readFile } from "node:fs/promises";
import { load } from "../checkpoint/load.ts";
import type { PublishedModel } from "../checkpoint/published-model.ts";
import type { Device } from "../device/device.ts";
import type { LanguageModel } from "../generate/language-model.ts";
import { Progress } from "../report/progress.ts";
import { formatBytes } from "../report/table.ts";
import { openLanguageModel } from "../tasks/language-modelling/run.ts";

/** Whether a folder holds a run of `linnet train`; otherwise it is read as a published model. */
export async function isRunFolder(path: string): Promise<boolean> {
  const text = await readFile(`${path}/config.json`, "utf8").catch(() => "");
  return /"format"\s*:\s*"linnet-run"/.test(text);
}

/** A published model, its progress shown on a terminal. */
export async function openPublished(
  path: string,
  device: Device,
  signal: AbortSignal,
): Promise<PublishedModel> {
  const progress = new Progress("loading", process.stderr);
  const onProgress = (done: number, total: number): void =>
    progress.update(done / Math.max(total, 1), `${formatBytes(done)} of ${formatBytes(total)}`);
  try {
    return await load(path, { device, signal, onProgress });
  } finally {
    progress.end();
  }
}

/** The model of a folder: of a run, or as it was published. */
export async function openModel(path: string, device: Device, signal: AbortSignal): Promise<LanguageModel> {
  return (await isRunFolder(path)) ? openLanguageModel(path, device) : openPublished(path, device, signal);
}
