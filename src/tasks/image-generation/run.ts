import type { Device } from "../../device/device.ts";
import { FormatError } from "../../errors.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { type RunConfig, RunFolder } from "../../train/run-folder.ts";
import { PixelModel, type PixelModelConfig } from "./pixel-model.ts";

/** A model of images that stands in a folder. */
export interface ImageRunConfig extends RunConfig {
  readonly task: "image-generation";
  readonly model: PixelModelConfig;
  /** The set that it learned from. */
  readonly data: string;
  readonly training: { readonly preset: string; readonly seed: number };
}

/** Where a model of images is kept as it learns. */
export type ImageRunSource = Pick<ImageRunConfig, "data" | "training">;

/**
 * Begins the folder of a model in training, whose weights `saveModel` then writes.
 *
 * @throws FormatError for a folder that holds a run already.
 */
export function createImageRun(path: string, model: PixelModel, source: ImageRunSource): Promise<RunFolder> {
  const config: ImageRunConfig = {
    ...{ format: "linnet-run", version: 1, task: "image-generation", model: model.config },
    ...source,
  };
  return RunFolder.create(path, config);
}

/**
 * The model of a folder that `linnet experiment images` left, to be drawn from.
 *
 * @throws FormatError for a folder that is no run, one of another task, and files that were damaged.
 * @example
 * ```ts no-run
 * const model = await openPixelModel("runs/images-quick/linear", device);
 * const sevens = await generateImages(model, device, { count: 4, label: 7 });
 * ```
 */
export async function openPixelModel(path: string, device: Device): Promise<PixelModel> {
  const folder = await RunFolder.open(path);
  const { task, model: config } = folder.config as ImageRunConfig;
  if (task !== "image-generation") {
    throw new FormatError(
      `[run] ${path} holds a run of another task: expected image-generation, got ${folder.config.task}`,
      "linnet generate continues texts, linnet classify labels them.",
    );
  }
  const model = new PixelModel(config);
  initialize(model, device, new Random(0, "init"));
  await folder.loadModel(model, device);
  return model;
}
