import type { TensorNames } from "../../nn/tensor-names.ts";
import { convAxes } from "../recurrence/conv-names.ts";

/** As flash-linear-attention has them. */
export const flashNames: TensorNames = { unitAxes: convAxes };
