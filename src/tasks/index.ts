/** Data, model and metric together: language modelling, masked tokens, classification, pairs, copying, recall, induction. */
export * from "./all.ts";
export {
  classification,
  evaluationTexts,
  type LabelledBatch,
  type LabelledIds,
  labelledBatches,
  scoreClassifier,
} from "./classification/index.ts";
export { openTextClassifier, TextClassifier, type TextLabel } from "./classification/text-classifier.ts";
export { type Comparison, type ComparisonPreset, compare } from "./comparison/experiment.ts";
export type { Experiment } from "./comparison/experiment-entry.ts";
export type { SequenceScore } from "./comparison/score.ts";
export {
  type Budget,
  type ComparisonRun,
  compareEntrants,
  type Entrant,
  summarize,
} from "./comparison/trials.ts";
export { experiments } from "./experiments.ts";
export * from "./headline/index.ts";
export * from "./image-generation/index.ts";
export { languageModelling, scoreText } from "./language-modelling/index.ts";
export {
  type MaskingOptions,
  maskedTokens,
  maskedWindows,
  maskTokens,
  scoreMasked,
} from "./masked-tokens/index.ts";
export {
  type Frame,
  type IdPair,
  type PairBatch,
  pairBatch,
  scorePairs,
  sequenceToSequence,
} from "./sequence-to-sequence/index.ts";
