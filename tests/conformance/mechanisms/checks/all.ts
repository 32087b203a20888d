import type { Check } from "../subject.ts";
import { extremesCheck } from "./extremes.ts";
import { finiteDifferencesCheck, fullGradientsCheck, gradientsCheck } from "./gradients.ts";
import { batchCheck, determinismCheck, headsCheck, leaksCheck, threadsCheck } from "./independence.ts";
import { reductionsCheck } from "./reductions.ts";
import { refusalsCheck } from "./refusals.ts";
import {
  carryCheck,
  futureCheck,
  nothingSeenCheck,
  packingCheck,
  paddingCheck,
  prefixCheck,
} from "./streaming.ts";
import { chunksCheck, doubleCheck, driftCheck, fullCheck, oddSizesCheck, valuesCheck } from "./values.ts";
import { weightsCheck } from "./weights.ts";

/** Every check, in the order they run. */
export const checks: readonly Check[] = [
  valuesCheck,
  doubleCheck,
  oddSizesCheck,
  fullCheck,
  chunksCheck,
  carryCheck,
  prefixCheck,
  futureCheck,
  packingCheck,
  paddingCheck,
  nothingSeenCheck,
  batchCheck,
  headsCheck,
  gradientsCheck,
  fullGradientsCheck,
  finiteDifferencesCheck,
  weightsCheck,
  reductionsCheck,
  extremesCheck,
  driftCheck,
  threadsCheck,
  determinismCheck,
  leaksCheck,
  refusalsCheck,
];
