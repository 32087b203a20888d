import type { TensorNames } from "../../nn/tensor-names.ts";

/** As decoders of transformers have them: the own words. */
export const transformersNames: TensorNames = {};
