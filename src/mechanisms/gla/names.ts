import type { TensorNames } from "../../nn/tensor-names.ts";

/** As flash-linear-attention has them; the norm has another name where it is not fused with the gate. */
export const flashNames: TensorNames = {
  renamed: { "oNorm.weight": ["g_norm_swish_gate.weight", "g_norm.weight"] },
};
