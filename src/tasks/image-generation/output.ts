import type { Tensor } from "../../autograd/tensor.ts";
import { formulaInit, type Init, zerosInit } from "../../nn/init.ts";
import { crossEntropy } from "../../ops/cross-entropy/index.ts";
import { logisticMixture } from "../../ops/logistic-mixture/index.ts";
import { mean } from "../../ops/reduce/index.ts";

/** How a model says what a pixel may be. */
export interface PixelOutput {
  readonly id: "mixture" | "softmax";
  /** Numbers that the model gives for a pixel. */
  readonly width: number;
  /** The start of the output layer's bias. */
  readonly biasInit: Init;
  /** Mean nats of values: `outputs [N, width]`, `values [N]` int32. */
  loss(outputs: Tensor, values: Tensor): Tensor;
  /**
   * Draws a value from 0 to 255 from one row of outputs.
   *
   * @param uniforms Two numbers between 0 and 1, the whole of the chance.
   * @param temperature Scales logits down and spreads up; at 0 the likeliest part's mean, or the likeliest value.
   */
  sample(outputs: Float32Array, uniforms: readonly [number, number], temperature: number): number;
}

/** Logistics of a mixture, as in the paper. */
const logistics = 10;

/** An index drawn from softmax(logits / temperature) by one uniform number. */
function choose(logits: Float32Array, uniform: number, temperature: number): number {
  let top = Number.NEGATIVE_INFINITY;
  let best = 0;
  for (let i = 0; i < logits.length; i++) {
    if (logits[i]! <= top) continue;
    top = logits[i]!;
    best = i;
  }
  if (temperature === 0) return best;
  let total = 0;
  for (const logit of logits) total += Math.exp((logit - top) / temperature);
  let left = uniform * total;
  for (let i = 0; i < logits.length; i++) {
    left -= Math.exp((logits[i]! - top) / temperature);
    if (left < 0) return i;
  }
  return best;
}

/**
 * A mixture of ten logistics, discretised to 256 values: 30 numbers [logits | means on [−1, 1] | log scales].
 *
 * A value is drawn as the logistic's own draw x = μ + s·log(u/(1−u)), rounded to the nearest level: the bins of
 * `logisticMixture`.
 */
export const mixtureOutput: PixelOutput = {
  id: "mixture",
  width: 3 * logistics,
  biasInit: formulaInit((i) => {
    if (i < logistics) return 0;
    return i < 2 * logistics ? -1 + (2 * (i - logistics) + 1) / logistics : -2;
  }),
  loss: (outputs, values) => mean(logisticMixture(outputs, values)),
  sample(outputs, [first, second], temperature) {
    const i = choose(outputs.subarray(0, logistics), first, temperature);
    const scale = temperature * Math.exp(Math.max(-7, outputs[2 * logistics + i]!));
    const x = outputs[logistics + i]! + scale * Math.log(second / (1 - second));
    return Math.min(255, Math.max(0, Math.round((x + 1) * 127.5)));
  },
};

/** A softmax over the 256 values. */
export const softmaxOutput: PixelOutput = {
  id: "softmax",
  width: 256,
  biasInit: zerosInit,
  loss: (outputs, values) => crossEntropy(outputs, values),
  sample: (outputs, [first], temperature) => choose(outputs, first, temperature),
};

/** The outputs by their ids. */
export const outputs: Readonly<Record<PixelOutput["id"], PixelOutput>> = {
  mixture: mixtureOutput,
  softmax: softmaxOutput,
};
