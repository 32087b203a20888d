import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { operands, type UpdateRule } from "./optimizer.ts";

const host: HostKernel = (buffers, [n], [rate, momentum, decay]) => {
  const { scale, p, g, slots } = operands(buffers);
  const [m] = slots as [TypedArray];
  for (let i = 0; i < n!; i++) {
    m[i] = momentum! * m[i]! + scale * g[i]!;
    p[i] = p[i]! * (1 - rate! * decay!) - rate! * m[i]!;
  }
};

/** Gradient descent with momentum: m ← μm + g, p ← p(1 − ηλ) − ηm. */
export function sgd(options: { readonly momentum?: number } = {}): UpdateRule {
  const { momentum = 0 } = options;
  return {
    id: "sgd",
    slots: ["m"],
    kernel: { key: "optimizer.sgd.forward", host },
    floats: (_, rate, decay) => [rate, momentum, decay],
  };
}
