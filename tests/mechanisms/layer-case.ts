/** Layers under test: made, fed with numbers, and fed piece by piece over a state. */
import assert from "node:assert/strict";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import type { Layer, LayerContext } from "../../src/mechanisms/layer.ts";
import { ModelState } from "../../src/models/state.ts";
import { initialize } from "../../src/nn/module.ts";
import { part } from "../../src/ops/split/index.ts";
import { Random } from "../../src/tensor/random.ts";

/** Standard normal numbers that every device holds exactly. */
export function normalTensor(
  device: Device,
  stream: string,
  shape: readonly number[],
  requiresGrad = false,
): Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  const values = new Random(5, stream).normal(new Float32Array(size));
  return tensor(device, values, shape, { requiresGrad });
}

/** The layer with weights that depend on nothing but their names. */
export function initialized<L extends Layer>(device: Device, layer: L): L {
  initialize(layer, device, new Random(42));
  for (const [name, parameter] of layer.namedParameters()) {
    // Norm weights and biases away from where they do nothing.
    if (parameter.decays) continue;
    const noise = new Random(43).fork(name).normal(new Float64Array(parameter.size));
    const values = parameter.value.dataSync();
    parameter.set(
      device,
      Float32Array.from(values, (value, i) => value + 0.3 * noise[i]!),
    );
  }
  return layer;
}

/** Evaluation of a causal call, unless told otherwise. */
export function contextOf(own: Partial<LayerContext> = {}): LayerContext {
  return { training: false, causal: true, ...own };
}

/** The output of one call without gradients. */
export function outputOf(layer: Layer, x: Tensor, own: Partial<LayerContext> = {}): Float64Array {
  return scope(x.device, () => noGrad(() => Float64Array.from(layer.forward(x, contextOf(own)).dataSync())));
}

/** Tokens [from, to) of every row. */
export function tokens(x: Tensor, from: number, to: number): Tensor {
  return part(x, 1, from, to - from);
}

/**
 * The outputs of pieces of the given lengths over one state, put together again: `[B,T,D]` row-major. Rows use slots in
 * descending order, so that row and slot differ.
 */
export function inPieces(layer: Layer, x: Tensor, lengths: readonly number[]): Float64Array {
  const { device } = x;
  const [B, T, D] = x.shape as [number, number, number];
  const states = new ModelState(device, [layer], B + 1, 4);
  const slots = Array.from({ length: B }, (_, b) => B - b);
  const result = new Float64Array(B * T * D);
  let from = 0;
  for (const length of lengths) {
    const piece = scope(device, () =>
      noGrad(() => {
        const state = states.view(slots, length)[0]!;
        return layer.forward(tokens(x, from, from + length), contextOf({ state })).dataSync();
      }),
    );
    states.advance(slots, length);
    for (let b = 0; b < B; b++)
      result.set(Float64Array.from(piece.subarray(b * length * D, (b + 1) * length * D)), (b * T + from) * D);
    from += length;
  }
  states.dispose();
  assert.equal(from, T, "the pieces are the whole");
  return result;
}

/** ‖actual − expected‖ / ‖expected‖; NaN where anything is. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  assert.equal(actual.length, expected.length);
  let error = 0;
  let size = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (actual[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  return size === 0 ? Math.sqrt(error) : Math.sqrt(error / size);
}

/** Fails unless within the bound; NaN fails. */
export function assertWithin(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  bound: number,
  what: string,
): void {
  const error = relativeError(actual, expected);
  assert.ok(error <= bound, `${what}: expected a relative error <= ${bound}, got ${error}`);
}
