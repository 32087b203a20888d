/** Mechanisms on plain arrays: no tensors, no layers, no gradients. */
import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { type Tensor, tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError, ShapeError, UnsupportedError } from "../errors.ts";
import type { Form, FormName, FormOptions, Mechanism } from "./mechanism.ts";
import { mechanism as find } from "./registry.ts";

/** Numbers with the lengths of their axes, row-major. */
export interface ShapedArray<Data extends ArrayLike<number> = ArrayLike<number>> {
  readonly data: Data;
  readonly shape: readonly number[];
}

/** An input: numbers with their shape, or numbers alone where `sizes` say it. */
export type ArrayInput = ArrayLike<number> | ShapedArray;

/** How a mechanism runs; what it takes beyond `FormOptions`, such as a window, goes beside them. */
export interface RunOptions extends Omit<FormOptions, "cuSeqlens"> {
  readonly device: Device;
  /** The chunkwise form, or the first that there is, unless given. */
  readonly form?: FormName;
  /** Lengths of axes by their letters, for inputs that come without a shape. HV is H, and HKV is HQ, unless given. */
  readonly sizes?: Readonly<Record<string, number>>;
  /** Borders of sequences packed in one row, `[N+1]` from 0 to T. */
  readonly cuSeqlens?: ArrayLike<number>;
  /** 1 for tokens and 0 for padding, `[B,T]`. */
  readonly mask?: ArrayInput;
  readonly [own: string]: unknown;
}

/** Results by name: `output`, and the parts of the state such as `finalState` and `finalNormalizer`. */
export type RunResults = Readonly<Record<string, ShapedArray<Float32Array | Float64Array>>>;

const defaultForms: readonly FormName[] = ["chunkwise", "recurrent", "parallel", "step"];

/**
 * One form of a mechanism over arrays: inputs by symbol → output and final state by name, in the device's dtype.
 *
 * Shapes are checked against the mechanism's rules and against each other. An array without a shape gets one from
 * `sizes`; a single axis that they leave open follows from the array's length.
 *
 * @throws ConfigError for an unknown mechanism, a missing input or an axis whose length nothing says, ShapeError for
 * arrays whose lengths disagree, UnsupportedError for a form that the mechanism does not have, with its reason.
 * @example
 * const sizes = { B: 1, T: 4, H: 2, K: 8, V: 8 };
 * const ones = (n: number) => new Float32Array(n).fill(1);
 * const inputs = { q: ones(64), k: ones(64), v: ones(64) };
 * const { output, finalState, finalNormalizer } = await runMechanism("linear", inputs, { device, sizes });
 */
export async function runMechanism(
  id: string | Mechanism,
  inputs: Readonly<Record<string, ArrayInput | undefined>>,
  options: RunOptions,
): Promise<RunResults> {
  const own = find(id);
  const { device, form: asked, sizes: told = {}, cuSeqlens, mask, ...call } = options;
  const form = formOf(own, asked);
  const given = Object.entries(inputs).filter(
    (entry): entry is [string, ArrayInput] => entry[1] !== undefined,
  );
  for (const [name] of given) checkKnown(own, name);
  const sizes = solveSizes(
    own,
    given,
    { ...told, ...(cuSeqlens && { N: cuSeqlens.length - 1 }) },
    call.causal,
  );
  return scope(device, async () => {
    const placed: Record<string, Tensor> = {};
    for (const [name, input] of given) {
      const axes = axesOf(own, name, cuSeqlens !== undefined, call.causal);
      placed[name] = place(device, own.id, name, input, axes, sizes);
    }
    if (mask !== undefined) placed["mask"] = place(device, own.id, "mask", mask, ["B", "T"], sizes, "int32");
    const lengths = cuSeqlens && {
      cuSeqlens: place(device, own.id, "cuSeqlens", cuSeqlens, ["N+1"], sizes, "int32"),
    };
    const results = noGrad(() => form(placed, { ...call, ...lengths }));
    const read: [string, RunResults[string]][] = [];
    for (const [name, result] of Object.entries(results)) {
      if (result === undefined) continue;
      read.push([
        name,
        { data: (await result.data()) as Float32Array | Float64Array, shape: [...result.shape] },
      ]);
    }
    return Object.fromEntries(read);
  });
}

function formOf({ id, forms }: Mechanism, asked: FormName | undefined): Form {
  const name =
    asked ?? defaultForms.find((candidate) => typeof forms[candidate] === "function") ?? "chunkwise";
  const form = forms[name];
  if (typeof form === "function") return form;
  const known = Object.keys(forms).filter((candidate) => typeof forms[candidate as FormName] === "function");
  throw new UnsupportedError(
    `[runMechanism] ${id} has no form ${name}: expected ${known.join(", ")}, got ${name}`,
    form?.absent,
  );
}

function checkKnown({ id, inputs }: Mechanism, name: string): void {
  if (inputs[name] !== undefined) return;
  throw new ConfigError(
    `[${id}] input ${name} is not known here: expected ${Object.keys(inputs).join(", ")}, got ${name}`,
  );
}

/** Axes of an input as this call has them: packed states by sequence, queries of a length of their own. */
function axesOf(
  own: Mechanism,
  name: string,
  isPacked: boolean,
  causal: boolean | undefined,
): readonly string[] {
  const { axes, ofQueries = name === "q" } = own.inputs[name]!;
  const letters = axes.split(" ");
  if (isPacked && letters[0] === "B" && !letters.includes("T")) letters[0] = "N";
  const isFull = causal === false || !own.traits.causal;
  return ofQueries && isFull && own.inputs["k"] !== undefined
    ? letters.map((letter) => (letter === "T" ? "Tq" : letter))
    : letters;
}

const isShaped = (input: ArrayInput): input is ShapedArray => "shape" in input && "data" in input;

/** Lengths of all axes: those told, those of inputs with a shape, and single ones that lengths of arrays leave open. */
function solveSizes(
  own: Mechanism,
  given: readonly (readonly [string, ArrayInput])[],
  told: Readonly<Record<string, number>>,
  causal: boolean | undefined,
): Readonly<Record<string, number>> {
  const sizes: Record<string, number> = { ...told };
  const rules = given.map(([name, input]) => ({
    input,
    axes: axesOf(own, name, told["N"] !== undefined, causal),
  }));
  for (const { input, axes } of rules) {
    if (isShaped(input)) for (const [i, axis] of axes.entries()) sizes[axis] ??= input.shape[i] ?? 0;
  }
  for (const [axis, like] of [
    ["Tq", "T"],
    ["HV", "H"],
    ["HQ", "H"],
    ["HKV", "HQ"],
  ] as const) {
    if (sizes[axis] === undefined && sizes[like] !== undefined) sizes[axis] = sizes[like];
  }
  for (let round = 0; round < rules.length; round++) {
    if (sizes["F"] === undefined && sizes["K"] !== undefined) {
      const features = own.featureWidth?.(sizes["K"]);
      if (features !== undefined) sizes["F"] = features;
    }
    for (const { input, axes } of rules) {
      if (isShaped(input)) continue;
      const open = axes.filter((axis) => sizes[axis] === undefined);
      if (open.length !== 1) continue;
      const others = axes.reduce((product, axis) => product * (sizes[axis] ?? 1), 1);
      if (Number.isInteger(input.length / others)) sizes[open[0]!] = input.length / others;
    }
  }
  return sizes;
}

function place(
  device: Device,
  who: string,
  name: string,
  input: ArrayInput,
  axes: readonly string[],
  sizes: Readonly<Record<string, number>>,
  dtype: "int32" | undefined = undefined,
): Tensor {
  const data = isShaped(input) ? input.data : input;
  const shape = isShaped(input) ? input.shape : axes.map((axis) => lengthOf(who, name, axis, axes, sizes));
  const size = shape.reduce((product, length) => product * length, 1);
  if (data.length !== size) {
    const names = axes.map((axis, i) => `${axis}=${shape[i] ?? "?"}`).join(", ");
    throw new ShapeError(
      `[${who}] ${name} has another number of elements than its shape: expected ${size} of [${names}], got ${data.length}`,
    );
  }
  return tensor(device, data, shape, dtype && { dtype });
}

function lengthOf(
  who: string,
  name: string,
  axis: string,
  axes: readonly string[],
  sizes: Readonly<Record<string, number>>,
): number {
  const length = axis === "N+1" ? (sizes["N"] ?? 0) + 1 : sizes[axis];
  if (length !== undefined) return length;
  throw new ConfigError(
    `[${who}] nothing says axis ${axis} of ${name} [${axes.join(", ")}]: expected its length in sizes, got none`,
    "Pass { data, shape } instead of a bare array, or name the lengths in sizes.",
  );
}
