import type { Tensor } from "../../autograd/tensor.ts";
import { relu } from "../../ops/activation/index.ts";
import { concat } from "../../ops/concat/index.ts";
import { negate, scale } from "../../ops/scale/index.ts";
import { softmax } from "../../ops/softmax/index.ts";

const least = 1e-12;

/**
 * max([softmax(y), softmax(−y)], 1e-12) along the last axis, y = x W learned: what stands for the exponential after
 * distillation (Hedgehog, arXiv 2402.04347v1; LoLCATs, arXiv 2410.10254v3).
 *
 * `y [...,F]` → `[...,2F]`, positive.
 */
export function hedgehog(y: Tensor): Tensor {
  const shares = concat([softmax(y), softmax(negate(y))], -1);
  return scale(relu(scale(shares, 1, -least)), 1, least);
}
