/** Data, model and metric together: language modelling, copying, recall, induction. */
export * from "./all.ts";
export {
  type Comparison,
  type ComparisonPreset,
  type ComparisonRun,
  compare,
  summarize,
} from "./comparison/experiment.ts";
export * from "./headline/index.ts";
export * from "./image-generation/index.ts";
export { languageModelling, scoreText } from "./language-modelling/index.ts";
