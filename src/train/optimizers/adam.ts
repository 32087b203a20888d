import type { HostKernel, Kernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { operands, type UpdateRule } from "./optimizer.ts";

const host: HostKernel = (buffers, [n], floats) => {
  const { scale, p, g, slots } = operands(buffers);
  const [m, v] = slots as [TypedArray, TypedArray];
  const [rate, beta1, beta2, eps, decay, unbias, spread, factor, rectified, coupled] = floats as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let i = 0; i < n!; i++) {
    const grad = g[i]! * scale + coupled * p[i]!;
    m[i] = beta1 * m[i]! + (1 - beta1) * grad;
    v[i] = beta2 * v[i]! + (1 - beta2) * grad * grad;
    const moment = rate * factor * unbias * m[i]!;
    p[i] = p[i]! * (1 - rate * decay) - (rectified ? moment / (Math.sqrt(v[i]!) / spread + eps) : moment);
  }
};

const kernel: Kernel = { key: "optimizer.adam.forward", host };

/** Constants of Adam and its kin. */
export interface AdamOptions {
  readonly beta1?: number;
  readonly beta2?: number;
  readonly eps?: number;
}

/**
 * Adam with decoupled weight decay: p ← p(1 − ηλ) − η m̂ / (√v̂ + ε) (Loshchilov & Hutter, arXiv 1711.05101v3,
 * algorithm 2). With a weight decay of 0 it is `adam`.
 */
export function adamW(options: AdamOptions = {}): UpdateRule {
  const { beta1 = 0.9, beta2 = 0.999, eps = 1e-8 } = options;
  return {
    id: "adamw",
    slots: ["m", "v"],
    kernel,
    floats: (t, rate, decay) => [
      rate,
      beta1,
      beta2,
      eps,
      decay,
      1 / (1 - beta1 ** t),
      Math.sqrt(1 - beta2 ** t),
      1,
      1,
      0,
    ],
  };
}

/**
 * Adam as first published: weight decay is part of the gradient, g ← g + λp, so that it is divided by √v̂ like all of it
 * (Kingma & Ba, arXiv 1412.6980v9, algorithm 1).
 */
export function adam(options: AdamOptions = {}): UpdateRule {
  const { floats, ...rule } = adamW(options);
  return {
    ...rule,
    id: "adam",
    floats: (t, rate, decay) => [...floats(t, rate, 0).slice(0, -1), decay],
  };
}

/**
 * Rectified Adam: while the variance of 1/√v̂ cannot be trusted (ρ_t ≤ 4) it steps along m̂ alone, afterwards the
 * adaptive step carries the factor r_t (Liu et al., arXiv 1908.03265v4, algorithm 2).
 */
export function rAdam(options: AdamOptions = {}): UpdateRule {
  const { beta1 = 0.9, beta2 = 0.999, eps = 1e-8 } = options;
  const longest = 2 / (1 - beta2) - 1;
  return {
    id: "radam",
    slots: ["m", "v"],
    kernel,
    floats: (t, rate, decay) => {
      const power = beta2 ** t;
      const length = longest - (2 * t * power) / (1 - power);
      const rectified = length > 4;
      const factor = rectified
        ? Math.sqrt(((length - 4) * (length - 2) * longest) / ((longest - 4) * (longest - 2) * length))
        : 1;
      const unbias = 1 / (1 - beta1 ** t);
      return [rate, beta1, beta2, eps, decay, unbias, Math.sqrt(1 - power), factor, rectified ? 1 : 0, 0];
    },
  };
}
