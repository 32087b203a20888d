/** Layers under test: made, fed with numbers, and fed piece by piece over a state. */
import assert from "node:assert/strict";
import { gradCheck } from "../../src/autograd/grad-check.ts";
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

/** Fails unless a layer gives the same whole, in pieces of any length and one token at a time. */
export function streamsAlike(layer: Layer, x: Tensor, bound: number): void {
  const T = x.shape[1]!;
  const whole = outputOf(layer, x);
  const pieces = [1, 9, 1, 1];
  const rest = T - pieces.reduce((a, b) => a + b, 0);
  assertWithin(inPieces(layer, x, [T]), whole, bound, "prefill");
  assertWithin(inPieces(layer, x, [...pieces, rest]), whole, bound, "pieces");
  assertWithin(inPieces(layer, x, new Array<number>(T).fill(1)), whole, bound, "tokens");
}

/** Fails unless the gradient of x agrees with central differences and every parameter that is learned has one. */
export function layerDifferentiates(
  layer: Layer,
  x: Tensor,
  own: Partial<LayerContext> = {},
  { step = 1e-5, bound = 1e-6 } = {},
): void {
  x.clearGrad();
  const rows = gradCheck(
    x.device,
    (inputs) => ({ y: layer.forward(inputs["x"]!, contextOf({ training: true, ...own })) }),
    { x },
    (stream, i) => Math.cos(17 * stream + 3 * i),
    step,
  );
  for (const row of rows) assert.ok(row.relativeError <= bound, JSON.stringify(row));
  for (const [name, { value }] of layer.namedParameters())
    assert.ok(drawnOnce.has(name) || value.grad !== undefined, `${name} has a gradient`);
}

/** Parameters that are saved with a layer but not learned. */
const drawnOnce = new Set(["features"]);

/**
 * Fails unless the gradient of every parameter agrees with central differences. A sum of numbers near 1 is known to some
 * 1e-15, so that over the step a derivative of 0 shows as up to 1e-8.
 */
export function parametersDifferentiate(
  layer: Layer,
  x: Tensor,
  own: Partial<LayerContext> = {},
  bound = 1e-6,
): void {
  const parameters = [...layer.namedParameters()].filter(([name]) => !drawnOnce.has(name));
  const values = Object.fromEntries(parameters.map(([name, { value }]) => [name, value]));
  for (const value of Object.values(values)) value.clearGrad();
  const rows = gradCheck(
    x.device,
    (inputs) => {
      for (const [name, parameter] of parameters) Object.assign(parameter, { held: inputs[name] });
      return { y: layer.forward(x, contextOf({ training: true, ...own })) };
    },
    values,
    (stream, i) => Math.cos(17 * stream + 3 * i),
    1e-6,
  );
  for (const [name, parameter] of parameters) Object.assign(parameter, { held: values[name] });
  for (const row of rows) {
    const difference = Math.abs(row.analytic - row.numeric);
    assert.ok(row.relativeError <= bound || difference <= 1e-8, JSON.stringify(row));
  }
}

/**
 * Fails unless padding on the left and on the right stays out, and rows of different pasts go on behind padding, with
 * gradients. `x [2, 12, D]` requires gradients.
 */
export function ignoresPadding(layer: Layer, x: Tensor, bound: number): void {
  const { device } = x;
  const D = x.shape[2]!;
  const ints = (values: number[], shape: number[]): Tensor =>
    tensor(device, values, shape, { dtype: "int32" });
  const mask = ints([0, 0, 0, ...new Array<number>(16).fill(1), 0, 0, 0, 0, 0], [2, 12]);
  const y = outputOf(layer, x, { mask });
  const left = outputOf(layer, tokens(x, 3, 12));
  const right = outputOf(layer, tokens(x, 0, 7));
  assertWithin(y.subarray(3 * D, 12 * D), left.subarray(0, 9 * D), bound, "left");
  assertWithin(y.subarray(12 * D, 19 * D), right.subarray(7 * D), bound, "right");
  assert.ok(y.subarray(0, 3 * D).every((value) => value === 0));
  if (!layer.carriesState) return;

  const whole = outputOf(layer, x);
  const states = new ModelState(device, [layer], 2, 16);
  const feed = (row: number, to: number): void => {
    outputOf(layer, tokens(part(x, 0, row, 1), 0, to), { state: states.view([row], to)[0]! });
    states.advance([row], to);
  };
  feed(0, 5);
  feed(1, 8);
  // Row 0 goes on with tokens 5 to 11, row 1 with tokens 8 to 11 behind padding.
  const values = x.dataSync();
  const next = new Float64Array(2 * 7 * D);
  next.set(Float64Array.from(values.subarray(5 * D, 12 * D)), 0);
  next.set(Float64Array.from(values.subarray(20 * D, 24 * D)), 10 * D);
  const input = tensor(device, next, [2, 7, D], { requiresGrad: true });
  const behind = ints([1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1], [2, 7]);
  const kept = new Map(
    Object.entries(states.view([0, 1], 7)[0]!.parts).map(([name, p]) => [name, p.dataSync().slice()]),
  );
  const restored = (): Partial<LayerContext> => {
    const state = states.view([0, 1], 7)[0]!;
    for (const [name, p] of Object.entries(state.parts)) device.write(p.layout, kept.get(name)!);
    return { state, mask: behind };
  };
  const got = outputOf(layer, input, restored());
  assertWithin(got.subarray(0, 7 * D), whole.subarray(5 * D, 12 * D), bound, "row 0");
  assertWithin(got.subarray(10 * D, 14 * D), whole.subarray(20 * D, 24 * D), bound, "row 1");
  assert.ok(got.subarray(7 * D, 10 * D).every((value) => value === 0));
  const rows = gradCheck(
    device,
    (inputs) => ({ y: layer.forward(inputs["x"]!, contextOf({ ...restored(), training: true })) }),
    { x: input },
    (stream, i) => Math.cos(17 * stream + 3 * i),
    1e-5,
  );
  for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
  states.dispose();
}
