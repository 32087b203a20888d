/** Sessions of constant size, sampling, and their saved states. */
export {
  type GeneratedPiece,
  type GenerateOptions,
  Generation,
  type GenerationResult,
} from "./generation.ts";
export { LanguageModel } from "./language-model.ts";
export { Runner } from "./runner.ts";
export { type Choice, type Distribution, distribution, type SamplingOptions, sample } from "./sampler.ts";
export { type PrefillOptions, Session } from "./session.ts";
export { type TranslateOptions, translate } from "./translate.ts";
