/** Every form of a golden file's op on every device, against the file. */
import { scope } from "../../src/autograd/scope.ts";
import { backward, noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import type { Form, FormName, FormOptions, Values } from "../../src/mechanisms/mechanism.ts";
import type { Golden, NamedValues } from "./golden.ts";
import type { Subject } from "./subjects.ts";

/** One comparison. */
export interface Row {
  readonly file: string;
  readonly op: string;
  readonly form: string;
  readonly device: string;
  readonly quantity: string;
  readonly relativeRms: number;
  readonly bound: number;
  readonly ok: boolean;
}

/** A device under its name. */
export type NamedDevice = readonly [name: string, device: Device];

/**
 * What a quantity may be off by, as relative root mean square.
 *
 * float32: 8·eps·√terms with eps = 2⁻²⁴, one rounding, and terms the additions behind one element. Outputs and states:
 * K channels and T tokens. Gradients: those of the way there and of the way back, K + V channels and T tokens each.
 * Never more than the yardsticks 2e-6 and 1e-5. float64: 1e-12, as the files were computed in float64 themselves.
 */
export function boundOf(dtype: string, quantity: string, inputs: NamedValues): number {
  if (dtype === "float64") return 1e-12;
  const [, T, , K] = inputs["k"]!.shape as [number, number, number, number];
  const V = inputs["v"]!.shape.at(-1)!;
  const isGradient = quantity.startsWith("grad.");
  const terms = isGradient ? 2 * (K + V + T) : K + T;
  return Math.min(isGradient ? 1e-5 : 2e-6, 8 * 2 ** -24 * Math.sqrt(terms));
}

/** ‖got − expected‖ / ‖expected‖; infinite where lengths differ or a number is none. */
export function relativeRms(got: ArrayLike<number> | undefined, expected: ArrayLike<number>): number {
  if (got === undefined || got.length !== expected.length) return Number.POSITIVE_INFINITY;
  let error = 0;
  let size = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (got[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  if (error === 0) return 0;
  return Number.isNaN(error) ? Number.POSITIVE_INFINITY : Math.sqrt(error / size);
}

type Results = Readonly<Record<string, ArrayLike<number>>>;

function place(device: Device, inputs: NamedValues, requiresGrad: boolean): Record<string, Tensor> {
  const placed: Record<string, Tensor> = {};
  for (const [name, { data, shape }] of Object.entries(inputs)) {
    placed[name] = tensor(device, data, shape, { requiresGrad });
  }
  return placed;
}

/** Outputs by name, and gradients as `grad.NAME` where the form has them. */
export function runForm(
  device: Device,
  form: Form,
  inputs: NamedValues,
  options: FormOptions,
  cotangents: NamedValues | undefined,
): Results {
  return scope(device, () => {
    const placed = place(device, inputs, cotangents !== undefined);
    const outputs = cotangents === undefined ? noGrad(() => form(placed, options)) : form(placed, options);
    const results: Record<string, ArrayLike<number>> = {};
    for (const [name, output] of Object.entries(outputs)) if (output) results[name] = output.dataSync();
    if (cotangents === undefined) return results;
    const names = Object.keys(cotangents).filter((name) => outputs[name] !== undefined);
    const seeds = place(device, cotangents, false);
    backward(
      names.map((name) => outputs[name]!),
      names.map((name) => seeds[name]),
    );
    for (const [name, input] of Object.entries(placed)) {
      if (input.grad !== undefined) results[`grad.${name}`] = input.grad.dataSync();
    }
    return results;
  });
}

function compare(golden: Golden, form: string, device: string, dtype: string, got: Results): Row[] {
  const expected: Record<string, Values> = { ...golden.outputs };
  if (Object.keys(got).some((name) => name.startsWith("grad."))) {
    for (const [name, value] of Object.entries(golden.gradients)) expected[`grad.${name}`] = value;
  }
  return Object.entries(expected).map(([quantity, { data }]) => {
    const error = relativeRms(got[quantity], data);
    const bound = boundOf(dtype, quantity, golden.inputs);
    const { file, op } = golden;
    return { file, op, form, device, quantity, relativeRms: error, bound, ok: error <= bound };
  });
}

/** The rows of one golden file: the reference in float64, then every form on every device. */
export function rowsOf(golden: Golden, subject: Subject, devices: readonly NamedDevice[]): Row[] {
  const rows: Row[] = [];
  const { inputs, options, reference } = subject;
  if (reference !== undefined) {
    const got = Object.fromEntries(Object.entries(reference(inputs)).map(([name, { data }]) => [name, data]));
    rows.push(...compare(golden, "reference", "float64", "float64", got));
  }
  for (const [name, device] of devices) {
    for (const [formName, form] of subject.forms) {
      const got = runForm(device, form, inputs, options, cotangentsOf(formName, golden));
      rows.push(...compare(golden, formName, name, device.defaultDtype, got));
    }
  }
  return rows;
}

function cotangentsOf(form: FormName, { cotangents, gradients }: Golden): NamedValues | undefined {
  return form === "step" || Object.keys(gradients).length === 0 ? undefined : cotangents;
}
