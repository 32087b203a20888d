import type { TensorNames } from "../../nn/tensor-names.ts";

/** As flash-linear-attention has them. */
export const flashNames: TensorNames = {};
