/**
 * Models as data: a decoder for every pattern of mechanisms, an encoder, the two joined; carried state; the published
 * models as presets.
 */
export { Classifier, type ClassifierConfig } from "./classifier.ts";
export * from "./config.ts";
export { Decoder, type ModelContext } from "./decoder.ts";
export { Encoder, type EncoderContext } from "./encoder.ts";
export { MaskedModel, type MaskedModelConfig } from "./masked-model.ts";
export { type Preset, preset, presets } from "./presets/index.ts";
export * from "./presets/published/index.ts";
export {
  SequenceToSequence,
  type SequenceToSequenceConfig,
  type SequenceToSequenceContext,
} from "./sequence-to-sequence.ts";
export { type CarriedBytes, layerBytes, type ModelSize, modelSize } from "./size.ts";
export { ModelState } from "./state.ts";
