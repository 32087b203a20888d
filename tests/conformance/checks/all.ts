import type { Check } from "../suite.ts";
import { finiteDifferencesCheck } from "./finite-differences.ts";
import { gradientsCheck } from "./gradients.ts";
import { offsetCheck, reversedCheck, slicedCheck } from "./layouts.ts";
import { leaksCheck } from "./leaks.ts";
import { refusalsCheck } from "./refusals.ts";
import { determinismCheck, threadsCheck } from "./threads.ts";
import { valuesCheck } from "./values.ts";

/** Every check, in the order they run. */
export const checks: readonly Check[] = [
  valuesCheck,
  gradientsCheck,
  offsetCheck,
  slicedCheck,
  reversedCheck,
  finiteDifferencesCheck,
  threadsCheck,
  determinismCheck,
  leaksCheck,
  refusalsCheck,
];
