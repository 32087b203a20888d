/** The training loop, optimizers, schedules, and the folder that keeps a run. */
export { WeightAverage } from "./average.ts";
export * from "./loop.ts";
export { type AdamOptions, adam, adamW, rAdam } from "./optimizers/adam.ts";
export { lion } from "./optimizers/lion.ts";
export { type MuonOptions, muon } from "./optimizers/muon.ts";
export {
  type MatrixRule,
  type MatrixUpdate,
  Optimizer,
  type OptimizerOptions,
  type OptimizerState,
  type StepReport,
  type UpdateRule,
} from "./optimizers/optimizer.ts";
export { sgd } from "./optimizers/sgd.ts";
export { type Resumable, type RunConfig, RunFolder } from "./run-folder.ts";
export * from "./schedules.ts";
