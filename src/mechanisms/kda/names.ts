import type { TensorNames } from "../../nn/tensor-names.ts";
import { convAxes } from "../recurrence/conv-names.ts";

/** As flash-linear-attention has them. */
export const flashNames: TensorNames = { renamed: { aLog: "A_log" }, unitAxes: convAxes };

/** As Kimi Linear has them. */
export const kimiNames: TensorNames = {
  renamed: {
    aLog: "A_log",
    "fProj.0.weight": "f_a_proj.weight",
    "fProj.1.weight": "f_b_proj.weight",
    "gProj.0.weight": "g_a_proj.weight",
    "gProj.1.weight": "g_b_proj.weight",
  },
  unitAxes: { ...convAxes, aLog: [0, 1, 3] },
};
