/**
 * What the house knows of an op: its rules for forward and backward, and the cases that prove and measure it.
 * An op is a folder with an `index.ts` that exports the function people call and its `OpEntry`, and a line in `all.ts`.
 */
import { apply, type BackwardContext, type Op } from "../autograd/tape.ts";
import { Tensor, type Tensors } from "../autograd/tensor.ts";
import type { Kernel } from "../device/device.ts";

export { apply, type BackwardContext, type Op, Tensor, type Tensors };

/** Values a test or benchmark may give to an input. */
export interface InputSpec {
  readonly shape: readonly number[];
  /**
   * `normal` unless given; `uniform` and `integers` lie in [low, high); `integers` and `values` are int32.
   * `values` lists them all.
   */
  readonly sample?: "normal" | "uniform" | "integers" | "values";
  readonly low?: number;
  readonly high?: number;
  readonly values?: readonly number[];
  /** False where the op has no gradient for this input. Integers never have one. */
  readonly differentiable?: boolean;
}

/** One call of an op: shapes, options and how many terms are added up in an output and in each gradient. */
export interface OpCase<Options> {
  readonly name: string;
  readonly inputs: Readonly<Record<string, InputSpec>>;
  readonly options: Options;
  /** Terms summed into one element of the outputs: the tolerance is 8·eps·sqrt(terms). */
  readonly terms: number;
  /** The same for the gradients, by input; `terms` where one is not listed. */
  readonly gradientTerms?: Readonly<Record<string, number>>;
  /** Calls that must fail carry the code of their error instead of a result. */
  readonly fails?: string;
}

/** What the benchmark measures: a usual size, and what the floor of its time is made of. */
export interface OpBench<Options> {
  readonly inputs: Readonly<Record<string, InputSpec>>;
  readonly options: Options;
  /** Bytes that must move for forward, and for backward, at float32. */
  readonly bytes: { readonly forward: number; readonly backward: number };
  /** Multiply-adds times two, where arithmetic may bind. */
  readonly flops?: { readonly forward: number; readonly backward: number };
  /** exp, log, tanh and the like per call. */
  readonly transcendentals?: { readonly forward: number; readonly backward: number };
}

/** An op as suites, benchmarks and tables see it. */
export interface OpEntry<Options = unknown> {
  readonly kind: "op";
  readonly name: string;
  readonly kernels: readonly Kernel[];
  /** Calls the op with inputs by name. */
  run(inputs: Readonly<Record<string, Tensor>>, options: Options): Tensors;
  readonly cases: readonly OpCase<Options>[];
  readonly bench?: OpBench<Options>;
}

/** True for the entry of an op: how lists find them among the exports of `all.ts`. */
export function isOpEntry(value: unknown): value is OpEntry {
  return typeof value === "object" && value !== null && (value as { kind?: unknown }).kind === "op";
}
