import type { TensorNames } from "../../nn/tensor-names.ts";
import { convAxes } from "../recurrence/conv-names.ts";

/** As mamba_ssm, transformers and flash-linear-attention have them. */
export const mambaNames: TensorNames = { renamed: { aLog: "A_log", d: "D" }, unitAxes: convAxes };
