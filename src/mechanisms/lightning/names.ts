import type { TensorNames } from "../../nn/tensor-names.ts";

/** As MiniMax-Text-01 has them: the own words. */
export const miniMaxNames: TensorNames = {};
