import { copyInto } from "../autograd/move.ts";
import { noGrad } from "../autograd/tape.ts";
import { empty, type Tensor, tensor } from "../autograd/tensor.ts";
import type { HostKernel, Kernel } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { Module, Parameter } from "../nn/module.ts";

const host: HostKernel = ([value, average], [n], [decay]) => {
  for (let i = 0; i < n!; i++) average![i]! += (1 - decay!) * (value![i]! - average![i]!);
};

const kernel: Kernel = { key: "optimizer.average.forward", host };
const unit = 4096;

/**
 * An exponential average of a module's weights: a ← δa + (1 − δ)w after every step (Polyak & Juditsky 1992 with
 * exponential weights). While few steps are done δ is (1 + t)/(10 + t), so that the start is soon forgotten.
 *
 * @throws ConfigError for a decay outside [0, 1).
 * @example
 * const average = new WeightAverage(task.module, 0.999);
 * average.update(); // after every step; `train({ average })` does it
 * const score = await average.use(() => evaluate(task, device, [tokens]));
 */
export class WeightAverage {
  readonly decay: number;
  /** The averaged weights by name. */
  readonly values: ReadonlyMap<string, Tensor>;
  readonly #parameters: readonly (readonly [string, Parameter])[];
  #count = 0;

  constructor(module: Module, decay: number) {
    if (!(decay >= 0 && decay < 1)) {
      throw new ConfigError(`[average] decay is a share: expected 0 <= decay < 1, got ${decay}`);
    }
    this.decay = decay;
    this.#parameters = [...module.namedParameters()];
    this.values = new Map(
      this.#parameters.map(([name, { value }]) => {
        const copy = empty(value.device, value.shape, { dtype: value.dtype, persistent: true });
        noGrad(() => copyInto(copy, value));
        return [name, copy];
      }),
    );
  }

  /** Steps followed so far. */
  get steps(): number {
    return this.#count;
  }

  /** Takes the weights as they are now into the average. */
  update(): void {
    const decay = Math.min(this.decay, (1 + this.#count) / (10 + this.#count));
    this.#count++;
    for (const [name, { value }] of this.#parameters) {
      value.device.run({
        ...{ kernel, buffers: [value.layout, this.values.get(name)!.layout], ints: [value.size] },
        ...{ floats: [decay], units: Math.ceil(value.size / unit), work: value.size, scratchBytes: 0 },
      });
    }
  }

  /** Runs `fn` while the module holds the averaged weights; training must not move them meanwhile. */
  async use<Result>(fn: () => Promise<Result> | Result): Promise<Result> {
    const kept = this.#parameters.map(([, { value }]) =>
      empty(value.device, value.shape, { dtype: value.dtype, persistent: true }),
    );
    noGrad(() => {
      for (const [i, [name, parameter]] of this.#parameters.entries()) {
        copyInto(kept[i]!, parameter.value);
        put(parameter, this.values.get(name)!);
      }
    });
    try {
      return await fn();
    } finally {
      noGrad(() => {
        for (const [i, [, parameter]] of this.#parameters.entries()) put(parameter, kept[i]!);
      });
      for (const copy of kept) copy.dispose();
    }
  }

  /** Goes on from kept values. */
  restore(steps: number, values: ReadonlyMap<string, ArrayLike<number>>): void {
    for (const [name, average] of this.values) {
      const kept = values.get(name);
      if (kept === undefined || kept.length !== average.size) {
        throw new ConfigError(
          `[average] the kept average belongs to another model: ${name} holds ${average.size} values, got ${kept?.length ?? "none"}`,
        );
      }
      const copy = tensor(average.device, kept, average.shape, { persistent: true });
      copyInto(average, copy);
      copy.dispose();
    }
    this.#count = steps;
  }

  dispose(): void {
    for (const value of this.values.values()) value.dispose();
  }
}

function put(parameter: Parameter, values: Tensor): void {
  copyInto(parameter.value, values);
  parameter.version++;
}
