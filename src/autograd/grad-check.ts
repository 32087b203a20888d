import type { Device } from "../device/device.ts";
import { scope } from "./scope.ts";
import { backward } from "./tape.ts";
import { type Tensor, type Tensors, tensor } from "./tensor.ts";

/** One input of a gradient check: how far the derivative along a random direction is from finite differences. */
export interface GradCheckRow {
  readonly input: string;
  readonly analytic: number;
  readonly numeric: number;
  /** |analytic − numeric| over the larger of the two, or over the size of the terms that cancelled in them. */
  readonly relativeError: number;
}

/** Random directions: any function of two integers that looks like a standard normal. */
export type Direction = (input: number, element: number) => number;

/**
 * Compares the gradient of every floating input that requires one with central differences.
 *
 * The scalar differentiated is Σ output·c over all outputs with random cotangents c. For each input x and a random
 * direction d it compares ⟨∂/∂x, d⟩ with (f(x + εd) − f(x − εd)) / 2ε, so the cost does not grow with the size of x.
 * Meant for a float64 device: with ε = 1e-6 the truncation and rounding errors are near 1e-9.
 *
 * @example
 * const direction = (input: number, element: number) => Math.cos(37 * input + element);
 * const rows = gradCheck(device, ({ x }) => ({ y: silu(x!) }), { x }, direction);
 */
export function gradCheck(
  device: Device,
  fn: (inputs: Record<string, Tensor>) => Tensors,
  inputs: Record<string, Tensor>,
  direction: Direction,
  epsilon = 1e-6,
): GradCheckRow[] {
  return scope(device, () => {
    const cotangents = new Map<string, Float64Array>();
    const weigh = (outputs: Tensors): number => {
      let total = 0;
      for (const name in outputs) {
        const values = outputs[name]?.dataSync();
        const weights = cotangents.get(name);
        if (values !== undefined && weights !== undefined)
          for (let i = 0; i < values.length; i++) total += values[i]! * weights[i]!;
      }
      return total;
    };
    const outputs = fn(inputs);
    const roots: Tensor[] = [];
    const seeds: Tensor[] = [];
    let stream = 1000;
    for (const name in outputs) {
      const output = outputs[name];
      if (output === undefined || !output.requiresGrad) continue;
      const weights = Float64Array.from({ length: output.size }, (_, i) => direction(stream, i));
      stream++;
      cotangents.set(name, weights);
      roots.push(output);
      seeds.push(tensor(device, weights, output.shape, { dtype: output.dtype }));
    }
    backward(roots, seeds);
    const rows: GradCheckRow[] = [];
    for (const [index, [name, input]] of Object.entries(inputs).entries()) {
      if (!input.requiresGrad) continue;
      const along = Float64Array.from({ length: input.size }, (_, i) => direction(index, i));
      const gradient = input.grad?.dataSync() ?? new Float64Array(input.size);
      let analytic = 0;
      let terms = 0;
      for (let i = 0; i < along.length; i++) {
        analytic += gradient[i]! * along[i]!;
        terms += (gradient[i]! * along[i]!) ** 2;
      }
      const values = input.dataSync();
      const at = (step: number): number =>
        scope(device, () => {
          const moved = Float64Array.from(values, (value, i) => value + step * along[i]!);
          return weigh(fn({ ...inputs, [name]: tensor(device, moved, input.shape, { dtype: input.dtype }) }));
        });
      const numeric = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
      const size = Math.max(Math.abs(analytic), Math.abs(numeric), Math.sqrt(terms), 1e-8);
      rows.push({ input: name, analytic, numeric, relativeError: Math.abs(analytic - numeric) / size });
    }
    return rows;
  });
}
