/** Published models loaded and saved; safetensors, read and written in memory and on disk. */

export type { NamedBytes } from "./checkpoint-source.ts";
export type { FillOptions } from "./fill.ts";
export type { HttpOptions } from "./http-source.ts";
export { type CheckpointFiles, type LoadOptions, load } from "./load.ts";
export { PublishedModel, type PublishedParts } from "./published-model.ts";
export * from "./safetensors.ts";
export { openSafetensors, type SafetensorsFile, saveSafetensors } from "./safetensors-file.ts";
export { headerLength, parseHeader } from "./safetensors-header.ts";
export { fromValues, toFloat32, toFloat64, toInt32 } from "./safetensors-values.ts";
export { type SaveOptions, save } from "./save.ts";
export { type ModelRow, modelFolders, type PassedModel, verifyModel } from "./verify-models.ts";
