import type { Tensor } from "../autograd/tensor.ts";
import { empty, tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError, DisposedError, ShapeError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";
import type { Init } from "./init.ts";

/** How a parameter is declared beyond its shape. */
export interface ParameterOptions {
  readonly init: Init;
  /** False for norms, biases and gate constants: optimizers leave them out of weight decay. */
  readonly decays?: boolean;
  /** True for the matrix of a linear map between activations: optimizers may move it as one thing. */
  readonly isMap?: boolean;
}

/**
 * A weight, declared by shape before anything is allocated: a model of any size can be listed, and a file loaded
 * into it, without a random start.
 */
export class Parameter {
  readonly shape: readonly number[];
  readonly init: Init;
  readonly decays: boolean;
  readonly isMap: boolean;
  /** Rises whenever the values change, so that packed copies know when they are stale. */
  version = 0;
  private held: Tensor | undefined;

  constructor(shape: readonly number[], options: ParameterOptions) {
    if (!shape.every((length) => Number.isInteger(length) && length >= 0)) {
      throw new ShapeError(`[parameter] a shape holds whole numbers >= 0, got [${shape.join(", ")}]`);
    }
    this.shape = shape;
    this.init = options.init;
    this.decays = options.decays ?? true;
    this.isMap = options.isMap ?? false;
  }

  get size(): number {
    return this.shape.reduce((product, length) => product * length, 1);
  }

  get isMaterialized(): boolean {
    return this.held !== undefined;
  }

  /** The values on their device. */
  get value(): Tensor {
    if (this.held === undefined) {
      throw new DisposedError(
        `[parameter] the values of shape [${this.shape.join(", ")}] are not there yet`,
        "Call initialize(module, device, random) or load weights first.",
      );
    }
    return this.held;
  }

  /** Puts values in, row-major; the tensor lives until the module is disposed. */
  set(device: Device, values: ArrayLike<number>): void {
    this.held?.dispose();
    this.held = tensor(device, values, this.shape, { requiresGrad: true, persistent: true });
    this.version++;
  }

  /** Room for values that are written piece by piece; until then they are whatever the memory holds. */
  allocate(device: Device): Tensor {
    this.held?.dispose();
    this.held = empty(device, this.shape, { requiresGrad: true, persistent: true });
    this.version++;
    return this.held;
  }

  dispose(): void {
    this.held?.dispose();
    this.held = undefined;
  }
}

/** A part of a model: what it declares as fields (parameters, modules, lists of modules) makes the tree. */
export abstract class Module {
  /** Every parameter with its dotted name, in the order of declaration. A parameter met twice has its first name. */
  *namedParameters(
    prefix = "",
    seen: Set<Parameter> = new Set(),
  ): Generator<[name: string, parameter: Parameter]> {
    for (const [field, value] of Object.entries(this)) yield* named(value, join(prefix, field), seen);
  }

  /** Every parameter once. */
  parameters(): Parameter[] {
    return [...this.namedParameters()].map(([, parameter]) => parameter);
  }

  /** Numbers that the module holds when it is materialized. */
  get parameterCount(): number {
    return this.parameters().reduce((sum, parameter) => sum + parameter.size, 0);
  }

  /** Frees the weights, and what modules keep beside them. */
  dispose(): void {
    for (const value of Object.values(this)) disposeAll(value);
  }
}

function disposeAll(value: unknown): void {
  if (value instanceof Parameter || value instanceof Module) value.dispose();
  else if (Array.isArray(value)) for (const item of value) disposeAll(item);
}

function* named(
  value: unknown,
  name: string,
  seen: Set<Parameter>,
): Generator<[name: string, parameter: Parameter]> {
  if (value instanceof Parameter) {
    if (!seen.has(value)) {
      seen.add(value);
      yield [name, value];
    }
  } else if (value instanceof Module) yield* value.namedParameters(name, seen);
  else if (Array.isArray(value))
    for (const [i, item] of value.entries()) yield* named(item, join(name, String(i)), seen);
}

function join(prefix: string, name: string): string {
  return prefix === "" ? name : `${prefix}.${name}`;
}

/**
 * Draws every parameter from its declared distribution.
 *
 * Every parameter draws from the stream of its name, so a weight does not depend on the others.
 *
 * @example
 * initialize(new Linear(8, 4), device, new Random(42));
 */
export function initialize(module: Module, device: Device, random: Random): void {
  for (const [name, parameter] of module.namedParameters()) {
    const values = parameter.init(parameter.shape, random.fork(name));
    if (values.length !== parameter.size) {
      throw new ConfigError(
        `[initialize] ${name} holds ${parameter.size} values, its start gave ${values.length}`,
      );
    }
    parameter.set(device, values);
  }
}
