import type { JoinedTensor, TensorNames } from "../../nn/tensor-names.ts";
import { convAxes } from "../recurrence/conv-names.ts";

const renamed = { aLog: "A_log" } as const;

/** As flash-linear-attention has them. */
export const flashNames: TensorNames = { renamed, unitAxes: convAxes };

const convolution: JoinedTensor = {
  file: "conv1d.weight",
  parts: ["qConv1d.weight", "kConv1d.weight", "vConv1d.weight"],
  unitAxes: [1],
};
const outputs = { "oNorm.weight": "norm.weight", "oProj.weight": "out_proj.weight" } as const;

/** As Qwen3-Next has them: projections head by head, `[q | k | v | z]` and `[b | a]`. */
export const qwen3NextNames: TensorNames = {
  renamed: { ...renamed, ...outputs },
  joined: [
    convolution,
    {
      file: "in_proj_qkvz.weight",
      parts: ["qProj.weight", "kProj.weight", "vProj.weight", "gProj.weight"],
      byHead: true,
    },
    { file: "in_proj_ba.weight", parts: ["bProj.weight", "aProj.weight"], byHead: true },
  ],
};

/** As Qwen3.5 has them: queries, keys and values in one projection, part after part. */
export const qwen35Names: TensorNames = {
  renamed: {
    ...renamed,
    ...outputs,
    "gProj.weight": "in_proj_z.weight",
    "bProj.weight": "in_proj_b.weight",
    "aProj.weight": "in_proj_a.weight",
  },
  joined: [
    convolution,
    { file: "in_proj_qkv.weight", parts: ["qProj.weight", "kProj.weight", "vProj.weight"] },
  ],
};
