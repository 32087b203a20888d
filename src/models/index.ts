/** One decoder whose layers follow a pattern of mechanisms, its carried state, and the published models as data. */
export * from "./config.ts";
export { Decoder, type ModelContext } from "./decoder.ts";
export { type Preset, preset, presets } from "./presets/index.ts";
export { type ModelSize, modelSize } from "./size.ts";
export { ModelState } from "./state.ts";
