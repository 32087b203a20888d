/** The contract of an optimizer: a rule says how one parameter moves, the loop around it is the same for all. */
import { scope } from "../../autograd/scope.ts";
import { empty, full, type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device, HostKernel, Kernel } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { Parameter } from "../../nn/module.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** How one kind of optimizer updates a parameter. */
export interface UpdateRule {
  readonly id: string;
  /** Names of the running values kept per parameter, all of its shape and zero at first. */
  readonly slots: readonly string[];
  readonly kernel: Kernel;
  /** The floats that the kernel takes at step `t` (1, 2, …). */
  floats(t: number, learningRate: number, weightDecay: number): readonly number[];
  /** What moves linear maps instead, where the rule tells them from the rest. */
  readonly matrices?: MatrixRule;
}

/** One linear map `[out, in]` that is to move. */
export interface MatrixUpdate {
  readonly value: Tensor;
  readonly grad: Tensor;
  readonly slots: Readonly<Record<string, Tensor>>;
  readonly learningRate: number;
  readonly weightDecay: number;
}

/** How an optimizer that sees a matrix as one thing updates it. */
export interface MatrixRule {
  readonly slots: readonly string[];
  /**
   * Moves maps of one shape, in a scope of its own. `control` is `[scale of the gradient, sound, norm]` on the device.
   */
  update(jobs: readonly MatrixUpdate[], control: Tensor): void;
}

/** What a step reports. Norm and soundness are read from the device, so they cost a readback on some. */
export interface StepReport {
  /** Global norm of the gradients before clipping, after scaling. */
  readonly gradientNorm: number;
  /** False when the gradients held NaN or Inf: nothing moved. */
  readonly sound: boolean;
}

/** Options of an optimizer that do not depend on its rule. */
export interface OptimizerOptions {
  readonly learningRate: number;
  /** Decoupled decay of the parameters that decay at all; 0 unless given. */
  readonly weightDecay?: number;
  /** Largest global norm of the gradients; larger ones are scaled down to it. */
  readonly clip?: number;
}

/** The values of an optimizer that a run must keep to go on as if it had not stopped. */
export interface OptimizerState {
  readonly steps: number;
  /** `slot/parameter` → values. */
  readonly tensors: ReadonlyMap<string, Tensor>;
}

const unit = 4096;

/** Maps of one shape move together, as many as come to so many numbers: 16 MiB for each of their intermediates. */
const togetherAtMost = 2 ** 22;

/** Moves parameters against their gradients. */
export class Optimizer {
  readonly rule: UpdateRule;
  readonly options: OptimizerOptions;
  private readonly parameters: readonly (readonly [string, Parameter])[];
  private readonly device: Device;
  private readonly slots = new Map<string, Tensor>();
  private readonly control: Tensor;
  private readonly partials: Tensor;
  private count = 0;

  constructor(
    rule: UpdateRule,
    parameters: Iterable<readonly [string, Parameter]>,
    options: OptimizerOptions,
  ) {
    this.rule = rule;
    this.options = options;
    this.parameters = [...parameters];
    const first = this.parameters[0];
    if (first === undefined)
      throw new ConfigError("[optimizer] at least one parameter is expected, got none");
    this.device = first[1].value.device;
    let units = 0;
    for (const [name, parameter] of this.parameters) {
      units += Math.ceil(parameter.size / unit);
      for (const slot of this.slotsOf(parameter)) {
        this.slots.set(`${slot}/${name}`, full(this.device, parameter.shape, 0, { persistent: true }));
      }
    }
    this.control = full(this.device, [3], 0, { persistent: true });
    this.partials = empty(this.device, [units], { persistent: true });
  }

  /** Steps taken so far, skipped ones not counted. */
  get steps(): number {
    return this.count;
  }

  /**
   * One step with the gradients as they are, each multiplied by `scale` first (1 over the number of accumulated
   * batches). Gradients that hold NaN or Inf move nothing.
   */
  async step(learningRate: number = this.options.learningRate, scale = 1): Promise<StepReport> {
    this.measure(scale);
    const control = await this.control.data();
    const report = { gradientNorm: control[2]!, sound: control[1] === 1 };
    if (!report.sound) return report;
    this.count++;
    const maps: MatrixUpdate[] = [];
    for (const [name, parameter] of this.parameters) {
      const { value } = parameter;
      if (value.grad === undefined) continue;
      const decay = parameter.decays ? (this.options.weightDecay ?? 0) : 0;
      const slots = this.slotsOf(parameter).map((slot) => this.slots.get(`${slot}/${name}`)!);
      if (this.movesAsMatrix(parameter)) {
        const named = Object.fromEntries(this.slotsOf(parameter).map((slot, i) => [slot, slots[i]!]));
        maps.push({ value, grad: value.grad, slots: named, learningRate, weightDecay: decay });
      } else this.move(value, slots, this.rule.floats(this.count, learningRate, decay));
      parameter.version++;
    }
    for (const jobs of together(maps))
      scope(this.device, () => this.rule.matrices!.update(jobs, this.control));
    return report;
  }

  /** Forgets the gradients. Their memory is kept for the next ones. */
  clearGradients(): void {
    for (const [, parameter] of this.parameters) parameter.value.clearGrad();
  }

  /** What a run keeps. */
  state(): OptimizerState {
    return { steps: this.count, tensors: this.slots };
  }

  /** Goes on from a kept state. */
  restore(steps: number, values: ReadonlyMap<string, ArrayLike<number>>): void {
    for (const [key, slot] of this.slots) {
      const kept = values.get(key);
      if (kept === undefined || kept.length !== slot.size) {
        throw new ConfigError(
          `[optimizer] the kept state belongs to another model or optimizer: ${key} holds ${slot.size} values, got ${kept?.length ?? "none"}`,
        );
      }
    }
    for (const [key, slot] of this.slots) {
      slot.dispose();
      this.slots.set(key, tensor(this.device, values.get(key)!, slot.shape, { persistent: true }));
    }
    this.count = steps;
  }

  dispose(): void {
    for (const slot of this.slots.values()) slot.dispose();
    this.control.dispose();
    this.partials.dispose();
  }

  private movesAsMatrix(parameter: Parameter): boolean {
    return this.rule.matrices !== undefined && parameter.isMap && Math.min(...parameter.shape) > 1;
  }

  private slotsOf(parameter: Parameter): readonly string[] {
    return this.movesAsMatrix(parameter) ? this.rule.matrices!.slots : this.rule.slots;
  }

  private move(value: Tensor, slots: readonly Tensor[], floats: readonly number[]): void {
    this.device.run({
      kernel: this.rule.kernel,
      buffers: [this.control, value, value.grad!, ...slots].map(({ layout }) => layout),
      ints: [value.size],
      floats,
      units: Math.ceil(value.size / unit),
      work: value.size * 4,
      scratchBytes: 0,
    });
  }

  /** Leaves [scale, sound, norm] of all gradients in `control`. */
  private measure(scale: number): void {
    let first = 0;
    for (const [, { value }] of this.parameters) {
      if (value.grad === undefined) continue;
      const units = Math.ceil(value.size / unit);
      this.device.run({
        kernel: partialKernel,
        buffers: [value.grad.layout, this.partials.layout],
        ints: [value.size, first],
        floats: [],
        units,
        work: value.size,
        scratchBytes: 0,
      });
      first += units;
    }
    this.device.run({
      kernel: finishKernel,
      buffers: [this.partials.layout, this.control.layout],
      ints: [first],
      floats: [this.options.clip ?? 0, scale],
      units: 1,
      work: first,
      scratchBytes: 0,
    });
  }
}

/** Maps by shape, few enough at a time. */
function together(maps: readonly MatrixUpdate[]): MatrixUpdate[][] {
  const open = new Map<string, MatrixUpdate[]>();
  const groups: MatrixUpdate[][] = [];
  for (const map of maps) {
    const shape = `${map.value.shape}`;
    let group = open.get(shape);
    if (group === undefined || (group.length + 1) * map.value.size > togetherAtMost) {
      group = [];
      groups.push(group);
      open.set(shape, group);
    }
    group.push(map);
  }
  return groups;
}

const partialHost: HostKernel = ([g, partials], [n, first]) => {
  for (let u = 0; u * unit < n!; u++) {
    let sum = 0;
    for (let i = u * unit; i < Math.min((u + 1) * unit, n!); i++) sum += g![i]! * g![i]!;
    partials![first! + u] = sum;
  }
};

const finishHost: HostKernel = ([partials, control], [count], [limit, scale]) => {
  let sum = 0;
  for (let i = 0; i < count!; i++) sum += partials![i]!;
  const norm = Math.sqrt(sum) * scale!;
  const sound = Number.isFinite(norm);
  control![0] = sound && limit! > 0 && norm > limit! ? (scale! * limit!) / norm : scale!;
  control![1] = sound ? 1 : 0;
  control![2] = norm;
};

const partialKernel: Kernel = { key: "gradientNorm.partial.forward", host: partialHost };
const finishKernel: Kernel = { key: "gradientNorm.finish.forward", host: finishHost };

/** The operands that every rule's host loop begins with. */
export function operands(buffers: readonly TypedArray[]): {
  readonly scale: number;
  readonly p: TypedArray;
  readonly g: TypedArray;
  readonly slots: readonly TypedArray[];
} {
  const [control, p, g, ...slots] = buffers as [TypedArray, TypedArray, TypedArray, ...TypedArray[]];
  return { scale: control[0]!, p, g, slots };
}
