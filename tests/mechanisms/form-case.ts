/** Forms of mechanisms against their references and finite differences. */
import assert from "node:assert/strict";
import { gradCheck } from "../../src/autograd/grad-check.ts";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { type Tensor, type Tensors, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Form, FormOptions, Mechanism, Values } from "../../src/mechanisms/mechanism.ts";
import { Random } from "../../src/tensor/random.ts";
import { assertWithin } from "./layer-case.ts";

/** Inputs by symbol. */
export type ValueInputs = Readonly<Record<string, Values>>;

/** Numbers for inputs of the given shapes, float32 numbers all. */
export function drawn(
  mechanism: Mechanism,
  shapes: Readonly<Record<string, readonly number[]>>,
): ValueInputs {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => {
      const size = shape.reduce((a, b) => a * b, 1);
      const normal = new Random(9, `${mechanism.id} ${name}`).normal(new Float64Array(size));
      return [name, { shape, data: normal.map((x) => Math.fround(mechanism.inputs[name]!.sample(x))) }];
    }),
  );
}

/** The inputs on a device. */
export function placed(device: Device, inputs: ValueInputs): Record<string, Tensor> {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, { data, shape }]) => [name, tensor(device, data, shape)]),
  );
}

/** Outputs of a call without gradients, with what the call needs beside inputs made on the device. */
export function outputsOf(
  device: Device,
  form: unknown,
  inputs: ValueInputs,
  options: FormOptions = {},
  extra: (device: Device) => Tensors = () => ({}),
): Record<string, Values> {
  return scope(device, () =>
    noGrad(() => {
      const outputs = (form as Form)({ ...placed(device, inputs), ...extra(device) }, options);
      return Object.fromEntries(
        Object.entries(outputs).flatMap(([name, x]) =>
          x === undefined ? [] : [[name, { shape: x.shape, data: Float64Array.from(x.dataSync()) }]],
        ),
      );
    }),
  );
}

/** Fails unless every output of a form, final states included, is within the bound of the reference's. */
export function agrees(
  device: Device,
  mechanism: Mechanism,
  form: unknown,
  inputs: ValueInputs,
  options: FormOptions,
  bound: number,
): void {
  const expected = mechanism.reference(inputs, options);
  const got = outputsOf(device, form, inputs, options);
  for (const name in got) {
    assert.deepEqual(got[name]!.shape, expected[name]!.shape, name);
    assertWithin(got[name]!.data, expected[name]!.data, bound, `${mechanism.id} ${name}`);
  }
}

/** Fails unless gradients of every input agree with central differences in float64. */
export function differentiates(
  form: unknown,
  inputs: ValueInputs,
  options: FormOptions = {},
  extra: (device: Device) => Tensors = () => ({}),
): void {
  const device = hostDevice({ dtype: "float64" });
  const given = placed(device, inputs);
  for (const input of Object.values(given)) input.requiresGrad = true;
  const rows = gradCheck(
    device,
    (own) => (form as Form)({ ...own, ...extra(device) }, options),
    given,
    (stream, i) => Math.cos(17 * stream + 3 * i),
    1e-5,
  );
  assert.equal(rows.length, Object.keys(inputs).length);
  for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
  device.close();
}
