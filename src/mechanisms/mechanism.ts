/**
 * The contract of a mechanism, on one page. A mechanism is a folder whose `index.ts` exports one such object, and a
 * line in `all.ts`; an object of the same shape made elsewhere works everywhere an id does.
 * Shared code reads traits, never ids.
 */
import type { Tensor, Tensors } from "../autograd/tensor.ts";
import type { Layer, LayerOptions } from "./layer.ts";

/** A paper, with what was taken from it. */
export interface Source {
  readonly title: string;
  /** arXiv id with version, or another permanent address. */
  readonly id: string;
  /** What is in it, by section where that is sure. */
  readonly equations: string;
}

/** An input by its symbol. */
export interface InputRule {
  /** Axes in the words of the house, such as `B T H K`. */
  readonly axes: string;
  /** Admissible values, as a phrase: "log decay, <= 0". */
  readonly domain: string;
  readonly optional?: boolean;
  /** False for masks and lengths. */
  readonly differentiable?: boolean;
  /** Its T is that of the queries where keys have another; q is so without saying. */
  readonly ofQueries?: boolean;
  /** Whether a value lies in the domain; every finite one does where it is absent. */
  admits?(value: number): boolean;
  /** An admissible value from a standard normal one: how suites and benchmarks draw this input. */
  sample(normal: number): number;
}

/** A part of the carried state. Parts with a T axis are caches: their bytes grow with the context. */
export interface StatePart {
  readonly axes: string;
  /** Name of the input that carries it in, such as `initialState`. */
  readonly input: string;
  /** Name of the output that carries it out, such as `finalState`. */
  readonly output: string;
  /** It says in which unit the other parts are kept and carries no gradient of its own. */
  readonly isUnit?: boolean;
}

/** What shared code may ask of a mechanism. */
export interface Traits {
  readonly decay: "none" | "head" | "scalar" | "key";
  readonly write: "add" | "delta" | "none";
  readonly normalized: boolean;
  /** Can run with every token seeing only itself and what came before. */
  readonly causal: boolean;
  /** Can run with every token seeing all, queries of another length included. */
  readonly full: boolean;
  /** The output of a prefix does not depend on what follows it, bit for bit; a sentence says why where it cannot hold. */
  readonly prefixExact: true | string;
  /** Bytes of state do not depend on the context. */
  readonly constantState: boolean;
  readonly linearInValue: boolean;
  /** Keys have unit length when drawn for tests: what keeps a delta update stable. */
  readonly unitKeys: boolean;
  /** The delta correction reads the decayed state. */
  readonly correctionReadsDecayed: boolean;
  readonly readsBeforeWrite: boolean;
}

/** How a form is called beyond its inputs. What a mechanism adds of its own it declares in its folder. */
export interface FormOptions {
  readonly causal?: boolean;
  /** Multiplies q·k; the mechanism's default where absent. */
  readonly scale?: number;
  /** Added to the normaliser. */
  readonly eps?: number;
  /** Chunk length of the chunkwise form. */
  readonly chunk?: number;
  /** int32 [N+1]: sequences packed in one row of a batch of 1. */
  readonly cuSeqlens?: Tensor;
}

/** Inputs by symbol → `output [B,T,HV,V]` and the final state parts by name. */
export type Form = (inputs: Tensors, options?: FormOptions) => Tensors;

/** A form that does not exist, with the reason in a sentence. */
export interface Absent {
  readonly absent: string;
}

/** Says why a form is missing; the sentence shows up in tables and errors. */
export function absent(reason: string): Absent {
  return { absent: reason };
}

/** The names of the fast forms, in the order tables show them. */
export const formNames = ["recurrent", "step", "chunkwise", "parallel"] as const;

/** One of the fast forms. */
export type FormName = (typeof formNames)[number];

/** A float64 array with its shape, as references take and return them. */
export interface Values {
  readonly data: Float64Array;
  readonly shape: readonly number[];
}

/** Plain float64 loops from the paper: the truth that every form is measured against. */
export type Reference = (
  inputs: Readonly<Record<string, Values>>,
  options: Omit<FormOptions, "cuSeqlens" | "chunk">,
) => Readonly<Record<string, Values>>;

/** "With these inputs it equals that other mechanism." */
export interface Reduction {
  /** Id of the other mechanism. */
  readonly to: string;
  readonly when: string;
  /** The sizes for which it holds. */
  readonly sizes?: { readonly T?: number; readonly K?: number };
  /** Turns admissible inputs of this mechanism into ones for which the two agree, for each of the two. */
  inputs(own: Readonly<Record<string, Values>>): {
    readonly own: Readonly<Record<string, Values>>;
    readonly other: Readonly<Record<string, Values>>;
    readonly ownOptions?: FormOptions;
    readonly otherOptions?: FormOptions;
  };
}

/** Sizes by axis name. */
export type Shape = Readonly<Record<"B" | "T" | "H" | "HV" | "K" | "V", number>>;

/** One mechanism: what it is, what it takes and carries, its forms, and the layer of its paper. */
export interface Mechanism {
  readonly id: string;
  readonly title: string;
  /** What it computes, in a line. */
  readonly equation?: string;
  /** When to take it, and when not. */
  readonly use?: string;
  readonly sources: readonly Source[];
  readonly inputs: Readonly<Record<string, InputRule>>;
  readonly state: Readonly<Record<string, StatePart>>;
  readonly traits: Traits;
  /** Axis F, the width of mapped keys, for keys of width K; absent where keys enter the state as they are. */
  readonly featureWidth?: (keyWidth: number) => number;
  /** Lengths that tests and benchmarks give to axes of its own, from those of the house. */
  readonly ownAxes?: (sizes: Readonly<Record<string, number>>) => Readonly<Record<string, number>>;
  readonly reference: Reference;
  readonly forms: Readonly<Record<FormName, Form | Absent>>;
  /** Weights `[B,H,Tq,T]` that the outputs are sums of values by, where values of single tokens do not show them. */
  readonly weights?: (inputs: Tensors, options: FormOptions) => Tensor;
  readonly reductions: readonly Reduction[];
  /** The layer of the paper: projections, gates, convolution, output norm, initialisation, defaults. */
  layer(options: LayerOptions): Layer;
  readonly benchShapes: readonly Shape[];
}
