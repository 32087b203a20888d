/** One list of checks over every op, case and device. */

import { scope } from "../../src/autograd/scope.ts";
import { backward } from "../../src/autograd/tape.ts";
import { type Tensor, type Tensors, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { OpCase, OpEntry } from "../../src/ops/op.ts";
import type { TypedArray } from "../../src/tensor/dtype.ts";
import { Random } from "../../src/tensor/random.ts";
import { isDifferentiable, type Placement, place, sampleValues } from "./samples.ts";

/** What a check looks at: one case of one op, on one device. */
export interface Subject {
  readonly entry: OpEntry;
  readonly case: OpCase<unknown>;
  readonly target: Target;
}

/** A device under test, opened when first asked for. */
export interface Target {
  readonly name: string;
  /** The device with that many threads; host devices have one. */
  open(threads: number): Promise<Device>;
}

/** One statement that holds for every op. */
export interface Check {
  readonly name: string;
  readonly sentence: string;
  /** Which subjects it is about; all unless given. */
  applies?(subject: Subject): boolean;
  run(subject: Subject): Promise<void>;
}

/** Outputs and gradients of one call, by name. */
export interface Result {
  readonly outputs: Readonly<Record<string, TypedArray>>;
  readonly gradients: Readonly<Record<string, TypedArray>>;
}

/** Runs a case forward and backward on a device, the cotangents of the outputs drawn at random. */
export function runCase(
  device: Device,
  entry: OpEntry,
  opCase: OpCase<unknown>,
  placement: Placement = "dense",
): Result {
  return scope(device, () => {
    const inputs = placeInputs(device, entry, opCase, placement);
    const outputs = entry.run(inputs, opCase.options);
    const gradients: Record<string, TypedArray> = {};
    const roots: Tensor[] = [];
    const seeds: Tensor[] = [];
    for (const [name, output] of Object.entries(outputs)) {
      if (output === undefined || !output.requiresGrad) continue;
      roots.push(output);
      seeds.push(cotangent(device, `${entry.name} ${opCase.name} ${name}`, output, placement));
    }
    if (roots.length > 0) backward(roots, seeds);
    for (const [name, input] of Object.entries(inputs)) {
      if (input.requiresGrad && input.grad !== undefined) gradients[name] = input.grad.dataSync();
    }
    return { outputs: values(outputs), gradients };
  });
}

/** The inputs of a case on a device. */
export function placeInputs(
  device: Device,
  entry: OpEntry,
  opCase: OpCase<unknown>,
  placement: Placement,
): Record<string, Tensor> {
  const inputs: Record<string, Tensor> = {};
  for (const [name, spec] of Object.entries(opCase.inputs)) {
    const sampled = sampleValues(spec, `${entry.name} ${opCase.name} ${name}`);
    inputs[name] = place(device, sampled, spec.shape, placement);
    inputs[name].requiresGrad = isDifferentiable(spec);
  }
  return inputs;
}

function cotangent(device: Device, stream: string, output: Tensor, placement: Placement): Tensor {
  const numbers = new Random(11, stream).normal(new Float32Array(output.size));
  return placement === "dense"
    ? tensor(device, numbers, output.shape, { dtype: output.dtype })
    : place(device, numbers, output.shape, placement);
}

function values(tensors: Tensors): Record<string, TypedArray> {
  const result: Record<string, TypedArray> = {};
  for (const [name, value] of Object.entries(tensors))
    if (value !== undefined) result[name] = value.dataSync();
  return result;
}

const references = new WeakMap<OpEntry, Map<OpCase<unknown>, Result>>();

/** The same on the host in float64: computed once per case. */
export function reference({ entry, case: opCase }: Subject): Result {
  const known = references.get(entry) ?? new Map<OpCase<unknown>, Result>();
  references.set(entry, known);
  let result = known.get(opCase);
  if (result === undefined) {
    result = runCase(hostDevice({ dtype: "float64" }), entry, opCase);
    known.set(opCase, result);
  }
  return result;
}

/** The name of an op as tests spell it: words joined by hyphens. */
export function words(name: string): string {
  return name.replace(/[A-Z]+(?![a-z])|[A-Z]/g, (letters) => `-${letters.toLowerCase()}`).replace(/^-/, "");
}

/** Names of what a subject must still pass, for messages: `rms-norm wasm-b gradients n=33`. */
export function title(check: Check, { entry, case: opCase, target }: Subject): string {
  return `${words(entry.name)} ${target.name} ${check.name} ${opCase.name}`;
}
