import type { TensorNames } from "../../nn/tensor-names.ts";

/** As DeepSeek and Kimi Linear have them. */
export const kimiNames: TensorNames = {
  renamed: {
    "kvAProj.weight": "kv_a_proj_with_mqa.weight",
    "kvANorm.weight": "kv_a_layernorm.weight",
    "qANorm.weight": "q_a_layernorm.weight",
  },
};
