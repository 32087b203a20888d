/**
 * What the words of the house stand for in an `@example` that does not say it itself: small random tensors with the
 * axes of docs/conventions.md, on a device that every test can use.
 */
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { initialize, Module, Parameter } from "../../src/nn/module.ts";
import { square } from "../../src/ops/activation/index.ts";
import { multiply } from "../../src/ops/arithmetic/index.ts";
import { mean } from "../../src/ops/reduce/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { adamW } from "../../src/train/optimizers/adam.ts";
import { Optimizer } from "../../src/train/optimizers/optimizer.ts";

export const [B, T, H, HV, K, V] = [1, 6, 2, 4, 4, 3];
export const [HQ, HKV] = [4, 2];
export const D = H * K;

export const device = hostDevice({ dtype: "float64" });
export const random = new Random(42, "docs");

/** Standard normal values, moved by `place` into the range a symbol asks for. */
function sample(shape: readonly number[], place = (normal: number): number => normal) {
  const size = shape.reduce((product, length) => product * length, 1);
  return tensor(device, random.normal(new Float64Array(size)).map(place), shape, { requiresGrad: true });
}

export const x = sample([B, T, D]);
export const qkv = sample([B, T, 2 * H * K + HV * V]);
export const q = sample([B, T, H, K]);
export const k = sample([B, T, H, K]);
export const v = sample([B, T, HV, V]);
export const g = sample([B, T, HV], (normal) => -Math.exp(normal));
export const beta = sample([B, T, HV], (normal) => 1 / (1 + Math.exp(-normal)));
export const weight = sample([D, D]);
export const weights = sample([B, T], Math.exp);
export const bias = sample([D]);
export const gate = sample([B, T, D]);
export const [prediction, target] = [sample([B, T, D]), sample([B, T, D])];
export const losses = sample([B, T], Math.abs);
export const table = sample([16, D]);
export const tokens = tensor(device, Int32Array.of(3, 1, 4, 1, 5, 9), [B, T], { dtype: "int32" });
export const logits = sample([T, 16]);
export const targets = tensor(device, Int32Array.of(3, 1, 4, 1, 5, -100), [T], { dtype: "int32" });
export const initialState = sample([B, HV, K, V]);

export const text = "The quick brown fox jumps over the lazy dog.";

/** A model of one weight. */
class Scaled extends Module {
  readonly weight = new Parameter([D], { init: (shape) => new Float64Array(shape[0]!).fill(1) });
}

export const model = new Scaled();
initialize(model, device, random);
export const task = {
  module: model,
  loss: (batch: Tensor) => mean(square(multiply(batch, model.weight.value))),
  size: (batch: Tensor) => batch.size,
};
export const batches = () => x;
export const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-3 });
