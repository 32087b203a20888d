/**
 * What the words of the house stand for in an `@example` that does not say it itself: small random tensors with the
 * axes of docs/conventions.md, on a device that every test can use.
 */
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { LanguageModel } from "../../src/generate/language-model.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { square } from "../../src/ops/activation/index.ts";
import { mean } from "../../src/ops/reduce/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { bytes } from "../../src/text/bytes.ts";
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
export const gain = sample([D]);
export const gate = sample([B, T, D]);
export const [prediction, target] = [sample([B, T, D]), sample([B, T, D])];
export const losses = sample([B, T], Math.abs);
export const table = sample([16, D]);
export const tokens = tensor(device, Int32Array.of(3, 1, 4, 1, 5, 9), [B, T], { dtype: "int32" });
export const logits = sample([T, 16]);
export const targets = tensor(device, Int32Array.of(3, 1, 4, 1, 5, -100), [T], { dtype: "int32" });
export const initialState = sample([B, HV, K, V]);

export const text = "The quick brown fox jumps over the lazy dog.";

const decoder = new Decoder({ vocabularySize: 257, width: 16, layers: 1, heads: 2, pattern: ["linear"] });
initialize(decoder, device, random);
export const model = new LanguageModel(decoder, bytes(), device);
export const task = {
  module: decoder,
  loss: (batch: Tensor): Tensor => mean(square(decoder.forward(batch).logits)),
  size: (batch: Tensor) => batch.size,
};
export const batches = () => tokens;
export const optimizer = new Optimizer(adamW(), decoder.namedParameters(), { learningRate: 1e-3 });
