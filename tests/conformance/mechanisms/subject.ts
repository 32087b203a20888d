/** What a check of mechanisms looks at: one form of one mechanism on one device, and how it is run. */
import assert from "node:assert/strict";
import { scope } from "../../../src/autograd/scope.ts";
import { backward, noGrad } from "../../../src/autograd/tape.ts";
import { type Tensor, tensor } from "../../../src/autograd/tensor.ts";
import type { Device } from "../../../src/device/device.ts";
import type { Form, FormName, FormOptions, Mechanism, Values } from "../../../src/mechanisms/mechanism.ts";
import type { Target } from "../suite.ts";
import { relativeError } from "../tolerance.ts";
import { type Inputs, isCarried, lengthOf, normal, type Sizes } from "./draw.ts";

/** One form of one mechanism on one device. */
export interface Subject {
  readonly mechanism: Mechanism;
  readonly name: FormName;
  readonly form: Form;
  readonly target: Target;
}

/** One statement that holds for every mechanism. */
export interface Check {
  readonly name: string;
  readonly sentence: string;
  /** Which subjects it is about; all unless given. */
  applies?(subject: Subject): boolean;
  run(subject: Subject): Promise<void>;
}

/** How a form is called, lengths and masks as plain numbers. */
export interface Call extends Omit<FormOptions, "cuSeqlens"> {
  readonly cuSeqlens?: readonly number[];
  readonly mask?: Values;
}

/** Results by name. */
export type Results = Readonly<Record<string, Values>>;

/** The form that a mechanism has under a name. */
export function formOf(mechanism: Mechanism, name: FormName): Form | undefined {
  const form = mechanism.forms[name];
  return typeof form === "function" ? form : undefined;
}

function place(device: Device, inputs: Inputs, leaf: (name: string) => boolean): Record<string, Tensor> {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, { data, shape }]) => [
      name,
      tensor(device, data, shape, { requiresGrad: leaf(name) }),
    ]),
  );
}

const integers = (device: Device, { data, shape }: Values): Tensor =>
  tensor(device, Int32Array.from(data), shape, { dtype: "int32" });

function callForm(
  device: Device,
  form: Form,
  placed: Record<string, Tensor>,
  call: Call,
): Record<string, Tensor> {
  const { cuSeqlens, mask, ...options } = call;
  const lengths = cuSeqlens && { data: Float64Array.from(cuSeqlens), shape: [cuSeqlens.length] };
  const outputs = form(
    mask === undefined ? placed : { ...placed, mask: integers(device, mask) },
    lengths === undefined ? options : { ...options, cuSeqlens: integers(device, lengths) },
  );
  return Object.fromEntries(Object.entries(outputs).filter(([, output]) => output !== undefined)) as Record<
    string,
    Tensor
  >;
}

/** The call that a mechanism takes where nothing is asked for: causal where it can be. */
export const usualCall = ({ traits }: Mechanism): { causal: boolean } => ({ causal: traits.causal });

/** True where a part of the state grows with the context. */
export function hasCache(mechanism: Mechanism): boolean {
  return Object.values(mechanism.state).some(({ axes }) => axes.includes("past"));
}

const read = (x: Tensor): Values => ({ shape: x.shape, data: Float64Array.from(x.dataSync()) });

/** Outputs of a form without gradients. */
export function evaluate(device: Device, form: Form, inputs: Inputs, call: Call = {}): Results {
  return scope(device, () =>
    noGrad(() => {
      const outputs = callForm(
        device,
        form,
        place(device, inputs, () => false),
        call,
      );
      return Object.fromEntries(Object.entries(outputs).map(([name, output]) => [name, read(output)]));
    }),
  );
}

/** True where a gradient by an input exists. */
export function isDifferentiable(mechanism: Mechanism, name: string): boolean {
  return mechanism.inputs[name]!.differentiable !== false;
}

/** Outputs that gradients may be asked of: all, or the output alone where a part of the state is the unit of the others. */
export function differentiableOutputs(
  mechanism: Mechanism,
  outputs: Readonly<Record<string, unknown>>,
): string[] {
  const parts = Object.values(mechanism.state);
  const hasUnit = parts.some((part) => part.isUnit);
  return Object.keys(outputs).filter(
    (name) => name === "output" || (!hasUnit && parts.some((p) => p.output === name)),
  );
}

/** Gradients by every input, the cotangents of the outputs drawn at random. */
export function differentiate(
  device: Device,
  mechanism: Mechanism,
  form: Form,
  inputs: Inputs,
  call: Call = {},
): Results {
  return scope(device, () => {
    const placed = place(device, inputs, (name) => isDifferentiable(mechanism, name));
    const outputs = callForm(device, form, placed, call);
    const names = differentiableOutputs(mechanism, outputs);
    const seeds = names.map((name) => {
      const { data, shape } = normal(`cotangent ${name}`, outputs[name]!.shape);
      return tensor(device, data, shape, { dtype: device.defaultDtype });
    });
    backward(
      names.map((name) => outputs[name]!),
      seeds,
    );
    const found = Object.entries(placed).filter(([, input]) => input.grad !== undefined);
    return Object.fromEntries(found.map(([name, input]) => [name, read(input.grad!)]));
  });
}

/**
 * What outputs and states may be off by: 8·eps·√terms with eps = 2⁻²⁴, one rounding, and terms the additions behind an
 * element: channels of a mapped key and tokens that a state holds.
 */
export function outputBound(mechanism: Mechanism, sizes: Sizes): number {
  return 8 * 2 ** -24 * Math.sqrt(lengthOf(mechanism, sizes, "F") + sizes["T"]! + (sizes["past"] ?? 0));
}

/** The same for gradients: the way there and the way back, and in them value channels too. */
export function gradientBound(mechanism: Mechanism, sizes: Sizes): number {
  const way = lengthOf(mechanism, sizes, "F") + sizes["V"]! + sizes["T"]! + (sizes["past"] ?? 0);
  return 8 * 2 ** -24 * Math.sqrt(2 * way);
}

/** Fails unless every expected value is there and within the bound. */
export function agree(got: Results, expected: Results, bound: number, what: string): void {
  for (const [name, { data, shape }] of Object.entries(expected)) {
    const own = got[name];
    if (own === undefined) {
      assert.notEqual(name, "output", `${what}: no output`);
      continue;
    }
    assert.deepEqual(own.shape, shape, `${what}: shape of ${name}`);
    const error = relativeError(own.data, data);
    assert.ok(error <= bound, `${what}: ${name} is off by ${error}, allowed are ${bound}`);
  }
}

/** The final state as the next call's initial one. */
export function carriedOn(mechanism: Mechanism, results: Results): Inputs {
  const parts = Object.values(mechanism.state).filter((part) => results[part.output] !== undefined);
  return Object.fromEntries(parts.map((part) => [part.input, results[part.output]!]));
}

/** Inputs without what carries a state in. */
export function fresh(mechanism: Mechanism, inputs: Inputs): Inputs {
  return Object.fromEntries(Object.entries(inputs).filter(([name]) => !isCarried(mechanism, name)));
}

/** The name of a case as tests spell it: `gated-delta chunkwise wasm-b state carry`. */
export function title(check: Check, { mechanism, name, target }: Subject): string {
  return `${mechanism.id} ${name} ${target.name} ${check.name}`;
}
