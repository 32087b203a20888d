/** Sessions of constant size: sampling, batches, beams, speculation, kept beginnings, and their saved states. */
export { Batch, type BatchOptions } from "./batch.ts";
export { type BeamOptions, type BeamResult, beamSearch } from "./beam-search.ts";
export {
  type FinishReason,
  type GeneratedPiece,
  type GenerateOptions,
  Generation,
  type GenerationResult,
} from "./generation.ts";
export { LanguageModel } from "./language-model.ts";
export type { PrefillOptions } from "./prefill.ts";
export { type PrefixReport, PrefixStore, type PrefixStoreOptions } from "./prefix-store.ts";
export { Runner } from "./runner.ts";
export {
  type Choice,
  type Distribution,
  distribution,
  likeliestOf,
  logProbabilities,
  type SamplingOptions,
  sample,
} from "./sampler.ts";
export { Session, type SessionOptions } from "./session.ts";
export type { Stepper } from "./stepper.ts";
export { type TranslateOptions, translate } from "./translate.ts";
