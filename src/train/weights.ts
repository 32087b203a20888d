import type { Tensor } from "../autograd/tensor.ts";
import type { TensorSource } from "../checkpoint/safetensors.ts";
import type { SafetensorsFile } from "../checkpoint/safetensors-file.ts";
import { fromValues, toFloat32 } from "../checkpoint/safetensors-values.ts";
import type { Device } from "../device/device.ts";
import { FormatError } from "../errors.ts";
import type { Module } from "../nn/module.ts";

/** A tensor as an entry of a file; its values are read from the device now. */
export async function entryOf(value: Tensor): Promise<TensorSource> {
  const values = await value.data();
  return fromValues(values, value.shape);
}

/** Every parameter of a module as an entry by its name. */
export async function weightEntries(module: Module, prefix = ""): Promise<Map<string, TensorSource>> {
  const entries = new Map<string, TensorSource>();
  for (const [name, parameter] of module.namedParameters())
    entries.set(prefix + name, await entryOf(parameter.value));
  return entries;
}

/**
 * Fills a module's parameters from a file whose names are the module's own.
 *
 * @throws FormatError that lists what is missing, left over or of another shape; nothing is changed then.
 */
export async function readWeights(
  module: Module,
  device: Device,
  file: SafetensorsFile,
  prefix = "",
  isOther: (name: string) => boolean = () => false,
): Promise<void> {
  const wanted = new Map(module.namedParameters());
  const problems: string[] = [];
  for (const [name, parameter] of wanted) {
    const info = file.tensors.get(prefix + name);
    if (info === undefined) problems.push(`${name} is missing`);
    else if (info.shape.join() !== parameter.shape.join()) {
      problems.push(`${name} is [${info.shape.join(", ")}], expected [${parameter.shape.join(", ")}]`);
    }
  }
  for (const name of file.tensors.keys()) {
    const own = name.startsWith(prefix) ? name.slice(prefix.length) : undefined;
    if ((own === undefined || !wanted.has(own)) && !isOther(name)) problems.push(`${name} is left over`);
  }
  if (problems.length > 0) {
    const shown = problems.slice(0, 5).join("; ");
    const more = problems.length > 5 ? ` and ${problems.length - 5} more` : "";
    throw new FormatError(`[weights] ${file.name} holds another model: ${shown}${more}`);
  }
  for (const [name, parameter] of wanted) parameter.set(device, toFloat32(await file.read(prefix + name)));
}
