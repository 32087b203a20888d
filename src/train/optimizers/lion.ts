import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { operands, type UpdateRule } from "./optimizer.ts";

const host: HostKernel = (buffers, [n], [rate, beta1, beta2, decay]) => {
  const { scale, p, g, slots } = operands(buffers);
  const [m] = slots as [TypedArray];
  for (let i = 0; i < n!; i++) {
    const grad = scale * g[i]!;
    const direction = Math.sign(beta1! * m[i]! + (1 - beta1!) * grad);
    p[i] = p[i]! * (1 - rate! * decay!) - rate! * direction;
    m[i] = beta2! * m[i]! + (1 - beta2!) * grad;
  }
};

/** Lion: p ← p(1 − ηλ) − η sign(β₁m + (1 − β₁)g), then m ← β₂m + (1 − β₂)g (Chen et al., arXiv 2302.06675v4, program 1). */
export function lion(options: { readonly beta1?: number; readonly beta2?: number } = {}): UpdateRule {
  const { beta1 = 0.9, beta2 = 0.99 } = options;
  return {
    id: "lion",
    slots: ["m"],
    kernel: { key: "optimizer.lion.forward", host },
    floats: (_, rate, decay) => [rate, beta1, beta2, decay],
  };
}
