/** Data, model and metric together: language modelling, copying, recall, induction. */
export * from "./all.ts";
export {
  type Comparison,
  type ComparisonPreset,
  type ComparisonRun,
  compare,
  summarize,
} from "./comparison/experiment.ts";
export { languageModelling, scoreText } from "./language-modelling/index.ts";
