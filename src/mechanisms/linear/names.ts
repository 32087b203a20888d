import type { TensorNames } from "../../nn/tensor-names.ts";

/** As flash-linear-attention has them: the own words. */
export const flashNames: TensorNames = {};
