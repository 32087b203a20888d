/** Safetensors, read and written in memory and on disk. */

export * from "./safetensors.ts";
export { openSafetensors, type SafetensorsFile, saveSafetensors } from "./safetensors-file.ts";
export { headerLength, parseHeader } from "./safetensors-header.ts";
export { fromValues, toFloat32, toFloat64, toInt32 } from "./safetensors-values.ts";
